"""What a task declares; most need nothing but their YAML."""

from typing import Any, ClassVar

from manyheads.runner.option.base import Option
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.nearest import nearest


class TaskOption(Option):
    """Declarations of a task.

    ``measures``: the names of its loss and metrics; None if only the ranks can tell, which then check the monitor.
    ``loss``: the class that loss._target_=auto stands for; None if the model computes the loss, so there is nothing to
    choose. ``mixes``: whether samples can be mixed with one another: batches are (inputs, targets), and the loss is
    over samples.
    """

    has_own_class = True
    measures: ClassVar[tuple[str, ...] | None] = None
    loss: ClassVar[str | None] = "torch.nn.CrossEntropyLoss"
    mixes: ClassVar[bool] = False

    def complete(self, config: dict[str, Any]) -> None:
        if config["loss"]["_target_"] == "auto":
            config["loss"]["_target_"] = self.loss or "auto"
        elif self.loss is None:
            raise ConfigurationError(
                f"loss._target_={config['loss']['_target_']}: with task={self.section['name']} the model computes its "
                "own loss. Set it to auto."
            )
        if self.loss is None and config["trainer"]["label_smoothing"]:
            raise ConfigurationError(
                f"trainer.label_smoothing={config['trainer']['label_smoothing']}: with task={self.section['name']} the "
                "model computes its own loss. Set it to 0."
            )
        trainer = config["trainer"]
        if not self.mixes and (key := next((k for k in ("mixup_alpha", "cutmix_alpha") if trainer[k]), None)):
            raise ConfigurationError(
                f"trainer.{key}={trainer[key]}: samples of task={self.section['name']} cannot be mixed. Set it to 0; "
                "task=classification and task=multilabel can."
            )
        if not self.mixes and trainer["tta"] != "none":
            raise ConfigurationError(
                f"trainer.tta={trainer['tta']}: outputs of task={self.section['name']} cannot be averaged over views "
                "of an image. Set it to none; task=classification and task=multilabel can."
            )
        monitor = config["checkpoint"]["monitor"]
        if self.measures is None or monitor == "auto":
            return
        columns = [f"val_{name}" for name in (*self.measures, *config["metrics"])]
        if monitor not in columns:
            raise ConfigurationError(
                f"checkpoint.monitor={monitor} is not measured.{nearest(monitor, columns)} Allowed: auto, "
                f"{', '.join(columns)}."
            )
