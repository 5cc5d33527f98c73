"""What logger=wandb declares."""

from typing import ClassVar

from manyheads.runner.logger.option import ADDRESS, NAME, TrackerOption
from manyheads.runner.option.rules import choice


class WandBOption(TrackerOption):
    """Declares steering keys: somebody else's config may not choose the account and server to publish to."""

    package = "wandb"
    settings = ("wandb/settings", ".wandb/settings", "config-defaults.yaml")
    leaves = ("wandb",)
    rules: ClassVar = {
        "project": NAME,
        "entity": NAME,
        "base_url": ADDRESS,
        "mode": choice("online", "offline"),
    }
    steering: ClassVar = ("entity", "base_url")
