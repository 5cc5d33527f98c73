"""What logger=mlflow declares."""

from typing import ClassVar

from manyheads.runner.logger.option import ADDRESS, TrackerOption
from manyheads.runner.option.rules import TEXT


class MLflowOption(TrackerOption):
    """Declares steering keys: somebody else's config may not choose the server that a run is published to."""

    package = "mlflow"
    rules: ClassVar = {"tracking_uri": ADDRESS, "experiment": TEXT}
    steering: ClassVar = ("tracking_uri",)
