"""Starts the ranks' server before the config is composed, if the command line shows that ranks will be forked."""

from collections.abc import Sequence

from manyheads.runner.config.lookup import CONF, options, read
from manyheads.runner.option.locate import Section

SWEEPS = {"-m", "--multirun"}  # whose jobs are child processes under the default launcher, too


def begin(words: Sequence[str]) -> None:
    """Start the server, which imports beside this process, if it will be needed. ``words``: as typed after train.

    A wrong guess changes nothing but time: ``launch.prepare`` starts a server, or ends this one.
    """
    if will_fork(words):
        from manyheads.launchers import warm_server  # not needed to print a config or the help

        warm_server.begin()


def will_fork(words: Sequence[str]) -> bool:
    """Whether the launcher that is typed, or that the strategy brings, forks its ranks, as far as conf/ tells.

    False if any flag of Hydra's is typed: most of them start no run.
    """
    flags = {word for word in words if word.startswith("-")}
    if flags - SWEEPS:
        return False
    typed = {key.lstrip("+"): value.partition(",")[0] for key, _, value in (word.partition("=") for word in words)}
    launcher = typed.get("launcher") or _launcher_of(typed.get("parallel"))
    if launcher is None:
        return bool(flags)
    return _option("launcher", launcher).get("warm") is True


def _launcher_of(strategy: str | None) -> str | None:
    """The launcher that a strategy brings along."""
    defaults = _option("parallel", strategy).get("defaults", []) if strategy else []
    return next((default["override /launcher"] for default in defaults if "override /launcher" in default), None)


def _option(group: str, name: str) -> Section:
    return read(CONF / group / f"{name}.yaml") if name in options(group) else {}
