"""Losses that torch lacks, by their names in ``loss._target_``."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    """Binary cross-entropy of each class, also for class numbers: the mean over samples and classes, or their sum.

    For class numbers, label smoothing is that of torch's cross-entropy: a fraction ``label_smoothing`` is spread evenly
    over all classes; for labels 0 and 1, (samples, classes), half of it goes to each. ``sum_classes``: sum over classes
    instead of averaging. ``target_threshold``: targets above it become 1, others 0, so that both classes of a mixed
    sample may be full targets. Source: Wightman et al. 2021 (https://arxiv.org/abs/2110.00476).
    """

    def __init__(
        self, *, label_smoothing: float = 0.0, sum_classes: bool = False, target_threshold: float | None = None
    ):
        super().__init__()
        self.label_smoothing, self.sum_classes = label_smoothing, sum_classes
        self.target_threshold = target_threshold

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """logits: (samples, classes); targets: (samples,) class numbers, or (samples, classes) from 0 to 1."""
        classes, smoothing = logits.shape[1], self.label_smoothing
        if targets.ndim == 1:
            wanted = one_hot(targets, classes).to(logits.dtype) * (1 - smoothing) + smoothing / classes
        else:
            wanted = targets.to(logits.dtype) * (1 - smoothing) + smoothing / 2
        return self._of(logits, wanted)

    def mixed(self, logits: Tensor, targets: Tensor, others: Tensor, share: float) -> Tensor:
        """The loss of mixed samples: ``share`` of the classes ``targets``, the rest of ``others``.

        Both are (samples,) class numbers, or (samples, classes) from 0 to 1.
        """
        classes, smoothing = logits.shape[1], self.label_smoothing
        labels, other = (
            (one_hot(numbers, classes) if numbers.ndim == 1 else numbers).to(logits.dtype)
            for numbers in (targets, others)
        )
        return self._of(logits, (labels * share + other * (1 - share)) * (1 - smoothing) + smoothing / classes)

    def _of(self, logits: Tensor, wanted: Tensor) -> Tensor:
        if self.target_threshold is not None:
            wanted = (wanted > self.target_threshold).to(logits.dtype)
        loss = binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        return torch.mean(loss.sum(1)) if self.sum_classes else loss.mean()
