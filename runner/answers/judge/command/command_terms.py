"""The terms of a judgement of commands, and the direction in which their numbers are better."""

import re
from dataclasses import dataclass

from manyheads.runner.answers.judge.terms import CLOCK, SPEED, Aim, JudgementTerms
from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option.rules import seconds

NAME = re.compile(r"[^\s,=:{}]+")
LOWER = {*("loss", "error", "err", "perplexity", "ppl", "bpb", "bpc", "nll", "time", "latency", "wer", "cer")}
LOWER |= {"rmse", "mse", "mae", "ms", "fid"}
HIGHER = {*("acc", "accuracy", "top", "f", "auc", "auroc", "bleu", "rouge", "map", "iou", "miou", "dice", "precision")}
HIGHER |= {"recall", "throughput", "reward"}


def command_aims(on: str) -> tuple[Aim, ...]:
    """The aims of ``--on`` for commands: ``seconds`` or names of numbers. Raises ConfigurationError."""
    names = [part.strip() for part in on.split(",")]
    if SPEED in names:
        raise ConfigurationError(
            "Name what should improve: --on seconds, for the time of the whole process, or a number that the command "
            "prints, such as --on val_loss.",
            key="--on",
            value=on,
        )
    if not all(map(NAME.fullmatch, names)) or len({*names}) < len(names):
        raise not_allowed("--on", on, "seconds, or different names of numbers, as in val_acc,val_loss")
    return tuple(map(Aim, names))


def sign_of(name: str) -> int | None:
    """1 if higher numbers of this name are better, -1 if lower ones are; None if the name does not say it."""
    words = re.findall(r"[a-z]+", name.lower())
    if not words:
        return None
    return -1 if words[-1] in LOWER else 1 if words[-1] in HIGHER else None


@dataclass(frozen=True)
class CommandTerms(JudgementTerms):
    """The flags of a judgement of commands, as typed; ``frozen`` and ``share`` are separated by commas.

    ``lower``: whether lower numbers are better; None if their names say it.
    """

    command: str = ""
    against: str | None = None
    code: str | None = None
    result: str | None = None
    lower: bool | None = None
    same: str | None = None
    timeout: str | None = None
    evaluator: str | None = None
    frozen: str | None = None
    share: str | None = None

    def __post_init__(self) -> None:
        if self.allow_changed_numerics:
            raise ConfigurationError(
                "--allow-changed-numerics is about configs. A command's numbers are not compared unless --same names "
                "one. Leave it out.",
                key="--allow-changed-numerics",
            )
        super().__post_init__()
        if (self.against is None) == (self.code is None):
            raise ConfigurationError(
                "Name the change: the changed command with --against, or, for changed files, the revision that base "
                "runs: --code HEAD.",
                key="--against",
            )
        if self.timeout is not None and not seconds(self.timeout):
            raise not_allowed("--timeout", self.timeout, "seconds, or 90s, 30m, 8h, 2d")
        if self.same is not None and self.on != CLOCK:
            raise ConfigurationError(
                "--same requires --on seconds: it says that both arms compute the same.", key="--same", value=self.same
            )
        _ = self.signs, self.tolerance

    @property
    def aims(self) -> tuple[Aim, ...]:
        return command_aims(self.on)

    @property
    def signs(self) -> dict[str, int]:
        """By the name of each number, 1 if higher is better, -1 if lower is. Raises ConfigurationError."""
        asked = None if self.lower is None else -1 if self.lower else 1
        signs = {aim.text: asked or sign_of(aim.text) for aim in self.aims if not aim.is_clock}
        unknown = next((name for name, sign in signs.items() if sign is None), None)
        if unknown is not None:
            raise ConfigurationError(
                f"Is a lower {unknown} better, or a higher one? Add --lower or --higher.", key="--lower"
            )
        return {name: sign for name, sign in signs.items() if sign is not None}

    @property
    def tolerance(self) -> tuple[str, float] | None:
        """The number of ``same`` and by which fraction of its size it may differ. Raises ConfigurationError."""
        if self.same is None:
            return None
        name, _, text = self.same.partition(":")
        try:
            allowed = float(text or 0)
        except ValueError:
            allowed = -1.0
        if not NAME.fullmatch(name) or not 0 <= allowed < 1:
            raise not_allowed("--same", self.same, "a name, or a name and a fraction, as in loss:1e-3")
        return name, allowed
