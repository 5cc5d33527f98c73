"""What logger=mlflow declares."""

from typing import ClassVar

from manyheads.runner.logger.option import ADDRESS, TrackerOption
from manyheads.runner.option.rules import TEXT


class MLflowOption(TrackerOption):
    """Whose server it is, nobody else's config may say: everything about the run would go there."""

    package = "mlflow"
    rules: ClassVar = {"tracking_uri": ADDRESS, "experiment": TEXT}
    steering: ClassVar = ("tracking_uri",)
