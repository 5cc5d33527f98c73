"""What starts before the config is composed, since the launcher on the command line will need it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from manyheads.runner.config.lookup import CONF, options, read
from manyheads.runner.option.declared import declared
from manyheads.runner.option.tree import Section

if TYPE_CHECKING:
    from manyheads.launchers.launcher_option import Ahead

SWEEPS = {"-m", "--multirun"}  # whose jobs are child processes under the default launcher, too


def ahead(words: Sequence[str]) -> "Ahead | None":
    """What the launcher that is typed, or that the strategy brings, can start already, as far as conf/ tells.

    ``words``: as typed after train. None if any flag of Hydra's is typed: most of them start no run. A wrong guess
    changes nothing but time.
    """
    flags = {word for word in words if word.startswith("-")}
    if flags - SWEEPS:
        return None
    typed = {key.lstrip("+"): value.partition(",")[0] for key, _, value in (word.partition("=") for word in words)}
    launcher = typed.get("launcher") or _launcher_of(typed.get("parallel"))
    if launcher is None and flags:
        defaults = read(CONF / "config.yaml")["defaults"]
        launcher = next(default["launcher"] for default in defaults if "launcher" in default)
    section = _option("launcher", launcher) if launcher else None
    return declared("launcher", section).ahead(in_sweep=bool(flags)) if section else None


def _launcher_of(strategy: str | None) -> str | None:
    """The launcher that a strategy brings along."""
    defaults = _option("parallel", strategy).get("defaults", []) if strategy else []
    return next((default["override /launcher"] for default in defaults if "override /launcher" in default), None)


def _option(group: str, name: str) -> Section:
    return read(CONF / group / f"{name}.yaml") if name in options(group) else {}
