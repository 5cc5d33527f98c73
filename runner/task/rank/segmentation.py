"""task=segmentation: a class for each pixel; batches are (images, masks), masks (samples, height, width)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.rank.confusion import IoU, PixelAccuracy, confusion
from manyheads.runner.task.rank.task import Task, counted, logits_of, weights_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data


class Segmentation(Task):
    """The loss is over the pixels of the global batch whose class is not ``ignore_index``.

    The model returns logits (samples, classes, height, width), or a dict with "out" and maybe "aux", an auxiliary
    head's, as torchvision's FCN, DeepLab and LR-ASPP do; "aux" adds ``aux_weight`` times its own loss while training.
    Logits of another size than the masks are resized, bilinearly.
    """

    monitor = "miou"

    def __init__(self, *, loss: nn.Module, ignore_index: int, aux_weight: float, data: "Data | None" = None):
        super().__init__()
        if not isinstance(loss, nn.CrossEntropyLoss):
            raise ConfigurationError.at(
                "loss._target_",
                f"{type(loss).__module__}.{type(loss).__qualname__}",
                " is not supported by "
                "task=segmentation. Allowed: torch.nn.CrossEntropyLoss, with any of its arguments; or write a task "
                "of your own.",
            )
        if data is None or data.num_classes is None:
            raise ConfigurationError(
                "data.num_classes is not set, and the data set has no num_classes. Set it.", key="data.num_classes"
            )
        loss.reduction, loss.ignore_index = "sum", ignore_index
        self.criterion, self.ignored, self.class_weights = loss, ignore_index, weights_of(loss)
        self.aux_weight, self.classes = aux_weight, data.num_classes
        known: Any = {"num_classes": self.classes, "task": self}
        self.metrics = (
            PixelAccuracy("acc", label="pixel accuracy", short="acc", **known),
            IoU("miou", label="mIoU", **known),
        )

    def count(self, batch: Any) -> float:
        return counted(batch[1].long(), self.ignored, self.class_weights)

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        masks = batch[1].long()
        loss = self.criterion(self._logits(outputs, masks), masks)
        auxiliary = outputs.get("aux") if isinstance(outputs, Mapping) else None
        if auxiliary is None or not self.aux_weight or not auxiliary.requires_grad:
            return loss
        return loss + self.aux_weight * self.criterion(_sized(auxiliary, masks), masks)

    def statistics(self, outputs: Any, batch: Any) -> dict[str, Tensor]:
        scores, targets = self.scored(outputs, batch)
        return {"confusion": confusion(scores.argmax(1), targets, self.classes)}

    def scored(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        masks = batch[1].long()
        scores = self._logits(outputs, masks).movedim(1, -1).flatten(0, -2)
        return scores, masks.masked_fill(masks == self.ignored, -1).flatten()

    def _logits(self, outputs: Any, masks: Tensor) -> Tensor:
        logits = outputs["out"] if isinstance(outputs, Mapping) and "out" in outputs else logits_of(outputs)
        if logits.ndim != 4 or masks.ndim != 3 or logits.shape[1] != self.classes:
            raise ConfigurationError(
                f"the model returns outputs of shape {tuple(logits.shape)} for masks of shape {tuple(masks.shape)}. "
                f"task=segmentation needs (samples, {self.classes} classes, height, width) and (samples, height, "
                "width). Set model= to a segmentation model, such as fcn_resnet50."
            )
        return _sized(logits, masks)


def _sized(logits: Tensor, masks: Tensor) -> Tensor:
    size = masks.shape[-2:]
    return logits if logits.shape[-2:] == size else interpolate(logits, size=size, mode="bilinear")
