"""The two arms of a judgement: one run config without the change and one with it, composed like any run's."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from manyheads.runner.answers.judge.config_question import ConfigQuestion
from manyheads.runner.answers.judge.terms import Aim
from manyheads.runner.answers.measure.arm_configs import ArmConfigs
from manyheads.runner.answers.measure.subject import check_fresh_start, composed
from manyheads.runner.config.hydra_errors import refuse_hydra
from manyheads.runner.config.quoting import readable
from manyheads.runner.errors import ConfigurationError, UnknownName
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.code_state import code_at_start
from manyheads.runner.provenance.own_code import own_code
from manyheads.runner.provenance.past_config import sent
from manyheads.runner.provenance.provenance import signature


@dataclass(frozen=True)
class Arms:
    """The run configs of both arms, complete and checked."""

    base: RunConfig
    change: RunConfig

    def differences(self) -> dict[str, list[Any]]:
        """The values of base and of the change, by key, for keys in which they differ."""
        return ArmConfigs.of(self.base, self.change).differences()

    def refuse_unmeasured(self, aims: Iterable[Aim]) -> None:
        """Raises ConfigurationError if an evaluation's metric is among the aims that a run does not measure."""
        metrics = [aim.metric for aim in aims if not aim.is_time and not aim.is_training]
        for run in (self.base, self.change):
            for metric in metrics:
                if not metric.startswith(("train_", "test_")) and (why := run.task.unmeasured(run, metric)) is not None:
                    raise ConfigurationError(f"{metric}{why}", key="--on", value=metric)

    def code(self) -> str:
        """A digest of the code that both arms run: this project's, and the user's own."""
        commit, diff = code_at_start()
        of_user = {**own_code(self.base.written), **own_code(self.change.written)}
        about = [commit, hashlib.sha256(diff).hexdigest(), of_user]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def compose_arms(overrides: Sequence[str], change: str | None, *, config_dir: str | None = None) -> Arms:
    """Compose and check both arms.

    ``change``: overrides in one string, as on a command line; None if only the code differs. Raises ConfigurationError
    if either config is wrong, or if the change does not change what is computed.
    """
    added = [] if change is None else _words(change)
    words = [readable(word) for word in (*overrides, *added)]
    for word, key in zip(words, OverridesParser.create().parse_overrides(words), strict=True):
        if key.is_sweep_override():
            message = f"{word}: a judgement compares two configs. Give one value."
            raise ConfigurationError(message, key=key.key_or_group, value=key.value())
        refuse_hydra([key], because="a judgement starts its runs itself")
        if word in map(readable, added) and key.key_or_group in ("seed", "trainer.evaluate_only", "checkpoint.resume"):
            raise ConfigurationError.at("--change", word, ": a judgement cannot compare that. Leave it out.")
    base = composed(overrides, config_dir)
    try:
        arms = Arms(base, composed([*overrides, *added], config_dir))
    except UnknownName as error:
        if not any(word.partition("=")[0] == error.key for word in overrides):
            raise
        raise UnknownName(
            f"{error} The change chooses another option: write ++{error.key}=... in base, and ~{error.key} in the "
            "change.",
            key=error.key,
            allowed=error.allowed,
        ) from None
    for arm in (arms.base, arms.change):
        check_fresh_start(arm, what="a judgement")
    if change is not None and signature(arms.base.written) == signature(arms.change.written) and not arms.differences():
        raise ConfigurationError(
            f"--change '{change}' changes nothing: both configs are the same.", key="--change", value=change
        )
    return arms


def recorded_arms(question: ConfigQuestion, overrides: Sequence[str], path: Path, *, is_own: bool) -> Arms:
    """The arms of a recorded question with ``overrides`` applied, checked and admitted like any saved configs.

    ``path``: the judgement's file, for messages. ``is_own``: whether the user recorded it. Raises as ``sent``.
    """
    return Arms(*(sent(config, path, overrides, is_own=is_own) for config in (question.base, question.changed)))


def _words(change: str) -> list[str]:
    try:
        words = shlex.split(change)
    except ValueError as error:
        raise ConfigurationError(
            f"--change '{change}' cannot be read: {error}.", key="--change", value=change
        ) from None
    if not words:
        raise ConfigurationError(
            "--change is empty. Name overrides, such as --change trainer.channels_last=true.", key="--change"
        )
    return words
