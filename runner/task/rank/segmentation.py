"""task=segmentation: a class for each pixel; batches are (images, masks), masks (samples, height, width)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import interpolate

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.metrics.rank.confusion import IoU, PixelAccuracy, confusion
from manyheads.runner.task.rank.targets import samples_with
from manyheads.runner.task.rank.task import Task, counted, logits_of, summed_cross_entropy, weights_of

if TYPE_CHECKING:
    from manyheads.runner.data.data_option import Data

SHOWN = 5  # classes or values in a message


class Segmentation(Task):
    """The loss is over the pixels of the global batch whose class is not ``ignore_index``.

    The model returns logits (samples, classes, height, width), or a dict with "out" and maybe "aux", an auxiliary
    head's, as torchvision's FCN, DeepLab and LR-ASPP do; "aux" adds ``aux_weight`` times its own loss while training.
    Logits of another size than the masks are resized, bilinearly. Masks may also be (samples, 1, height, width),
    and floats if all are whole.
    """

    monitor = "miou"

    def __init__(self, *, loss: nn.Module, ignore_index: int, aux_weight: float, data: "Data | None" = None):
        super().__init__()
        self.criterion = loss = summed_cross_entropy(loss, "segmentation")
        if data is None or data.num_classes is None:
            raise ConfigurationError(
                "data.num_classes is not set, and the data set has no num_classes. Set it.", key="data.num_classes"
            )
        loss.ignore_index = self.ignored = ignore_index
        self.class_weights = weights_of(loss)
        self.aux_weight, self.classes = aux_weight, data.num_classes
        self.values: list[int] = []  # in the first batch's masks
        options: Any = {"num_classes": self.classes, "task": self}
        self.metrics = (
            PixelAccuracy("acc", label="pixel accuracy", short="acc", **options),
            IoU("miou", label="mIoU", **options),
        )

    def converted(self, batch: Any) -> Any:
        images, masks, *rest = batch
        if isinstance(masks, Tensor) and (masks.is_floating_point() or masks.ndim == 4):
            masks = masks.squeeze(1) if masks.ndim == 4 else masks
            if bool((unfit := masks != masks.round()).any()):
                raise self._refused(f"contain {float(masks[unfit][0]):.4g}")
            return images, masks.long(), *rest
        return batch

    def check(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        masks = batch[1].long()
        self.values = masks.unique().tolist()
        if unfit := [v for v in self.values if v != self.ignored and not 0 <= v < self.classes]:
            raise self._refused(f"contain {unfit[0]}{samples_with(masks == unfit[0], ids)}")

    def check_epoch(self, statistics: Mapping[str, Tensor]) -> str | None:
        missing = (statistics["confusion"].sum(1) == 0).nonzero().flatten().tolist()
        if self.classes > 1 and len(missing) >= self.classes - 1:
            only = ", ".join(map(str, {*range(self.classes)} - {*missing})) or "none"
            raise self._refused(f"have no pixel that counts but of class {only}, in all of an epoch")
        if not missing:
            return None
        listed = ", ".join(map(str, missing[:SHOWN])) + (", ..." if len(missing) > SHOWN else "")
        return f"warning: no pixel of the training masks has class {listed}, of {self.classes} classes."

    def _refused(self, what: str) -> ConfigurationError:
        seen = f" The first batch has the values {', '.join(map(str, self.values[:SHOWN]))}." if self.values else ""
        return ConfigurationError(
            f"the masks {what}. Masks are class numbers, 0 to {self.classes - 1}, or {self.ignored} for pixels that "
            f"are ignored (task.ignore_index).{seen} Let the data set return those: divide a file of 0 and 255 by 255, "
            "and read masks by PILToTensor, since ToTensor divides everything by 255.",
            key="task",
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
