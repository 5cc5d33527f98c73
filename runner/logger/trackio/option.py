"""What logger=trackio declares."""

from typing import ClassVar

from manyheads.runner.logger.option import NAME, TrackerOption


class TrackioOption(TrackerOption):
    """It writes below the user's own cache, or TRACKIO_DIR."""

    package = "trackio"
    rules: ClassVar = {"project": NAME}
