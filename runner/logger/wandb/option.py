"""What logger=wandb declares."""

from typing import ClassVar

from manyheads.runner.logger.option import ADDRESS, NAME, TrackerOption
from manyheads.runner.option.rules import choice


class WandBOption(TrackerOption):
    """Whose account and server it is, nobody else's config may say: everything about the run would go there."""

    package = "wandb"
    rules: ClassVar = {
        "project": NAME,
        "entity": NAME,
        "base_url": ADDRESS,
        "mode": choice("online", "offline"),
    }
    steering: ClassVar = ("entity", "base_url")
