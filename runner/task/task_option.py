"""Declarations of a task; most need nothing but their YAML."""

from typing import ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.option import Option
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import TARGET
from manyheads.runner.wording import nearest


class TaskOption(Option):
    """Declarations of a task.

    ``measures``: the names of its loss and metrics; None if only the ranks can tell, which then check the monitor.
    ``loss``: the class that loss._target_=auto stands for; None if the model computes the loss, so there is nothing to
    choose. ``mixes``: whether samples can be mixed with one another: batches are (inputs, targets), and the loss is
    over samples.
    """

    group = "task"
    has_own_class = True
    measures: ClassVar[tuple[str, ...] | None] = None
    loss: ClassVar[str | None] = "torch.nn.CrossEntropyLoss"
    mixes: ClassVar[bool] = False

    def resolved(self, run: RunConfig) -> RunConfig:
        return run.changed(loss={TARGET: self.loss}) if self.loss and run.loss[TARGET] == "auto" else run

    def check_run(self, run: RunConfig) -> None:
        trainer, loss, monitor = run.trainer, run.loss[TARGET], run.checkpoint.monitor
        if self.loss is None and loss != "auto":
            raise ConfigurationError.at(
                "loss._target_", loss, f": with task={self.name} the model computes its own loss. Set it to auto."
            )
        if self.loss is None and trainer.label_smoothing:
            raise ConfigurationError.at(
                "trainer.label_smoothing",
                trainer.label_smoothing,
                f": with task={self.name} the model computes its own loss. Set it to 0.",
            )
        mixing = {"mixup_alpha": trainer.mixup_alpha, "cutmix_alpha": trainer.cutmix_alpha}
        if not self.mixes and (key := next((key for key, alpha in mixing.items() if alpha), None)):
            raise ConfigurationError.at(
                f"trainer.{key}",
                mixing[key],
                f": samples of task={self.name} cannot be mixed. Set it to 0; "
                "task=classification and task=multilabel can.",
            )
        if not self.mixes and trainer.tta != "none":
            raise ConfigurationError.at(
                "trainer.tta",
                trainer.tta,
                f": outputs of task={self.name} cannot be averaged over views of an image. "
                "Set it to none; task=classification and task=multilabel can.",
            )
        if monitor != "auto" and (why := self.unmeasured(run, monitor, "auto")) is not None:
            raise ConfigurationError.at("checkpoint.monitor", monitor, why, allowed=["auto", *self.columns(run)])

    def columns(self, run: RunConfig) -> list[str]:
        """The columns that an evaluation of this run measures; none if only the ranks can tell."""
        return [] if self.measures is None else [f"val_{name}" for name in (*self.measures, *run.metrics)]

    def unmeasured(self, run: RunConfig, column: str, *others: str) -> str | None:
        """Why no evaluation of a run measures a column such as val_loss, after its name; None if one may.

        ``others``: what is allowed besides columns.
        """
        columns, trainer = self.columns(run), run.trainer
        if trainer.evaluate_every == 0 and not trainer.evaluate_only:
            return " is never measured with trainer.evaluate_every=0. Set trainer.evaluate_every=1."
        if not columns or column in columns:
            return None
        return f" is not measured.{nearest(column, columns)} Allowed: {', '.join((*others, *columns))}."
