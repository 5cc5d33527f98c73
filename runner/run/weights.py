"""The weights of a run that a command uses: its best ones, or its last."""

from pathlib import Path

from manyheads.runner.errors import ConfigurationError, WrongValue
from manyheads.runner.run.run_folder import RunFolder

BEST, LAST = "best", "last"


def chosen(folder: RunFolder, which: str | None = None) -> tuple[str, Path]:
    """The name of the weights, "best" or "last", and their checkpoint; without ``which`` the best if there are any.

    Raises ConfigurationError.
    """
    paths = {BEST: folder.best_checkpoint, LAST: folder.last_checkpoint}
    if which is not None and which not in paths:
        message = f"{which}: there are no such weights. Allowed: {', '.join(paths)}."
        raise WrongValue(message, key="--weights", value=which, allowed=[*paths])
    names = [name for name in ([which] if which else paths) if paths[name].exists()]
    if not names:
        raise ConfigurationError(
            f"{folder} has no {which + ' ' if which else ''}weights: {paths[which or LAST]} does not exist. Name a run "
            "that has been trained, with checkpoint.every other than 0."
        )
    return names[0], paths[names[0]]
