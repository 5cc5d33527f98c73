"""mixup and cutmix: each sample is mixed with another one of its global batch, and so is its loss.

The pairs must not depend on how many ranks and micro-batches divide a batch. The order of samples is drawn anew in each
epoch, so adjacent samples, the first and second, the third and fourth, are as random a pair as any other. If the parts
of a batch have even sizes, no pair is split; at an odd boundary, a rank also reads the other half of the pair and drops
it after mixing: at most two more samples per micro-batch, and none in most runs.

Sources: Zhang et al. 2017 (https://arxiv.org/abs/1710.09412), Yun et al. 2019 (https://arxiv.org/abs/1905.04899); one
draw per batch, and switching between the two, as in timm.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.task import Task

_SALT = 0x6D6978  # separates these draws from the order of an epoch


class Mix(NamedTuple):
    """How to mix a batch. ``share``: weight of each sample itself; ``box``: for cutmix the pasted box's center (y, x).

    Of the samples that were read, those in [``first``, ``last``) are the rank's own.
    """

    share: float
    box: tuple[float, float] | None
    first: int = 0
    last: int = 0


@dataclass
class Partners:
    """The partners of a batch's samples. ``content``: (inputs, the partners' targets).

    ``share``: weight of the samples' own targets in the loss; 1 - ``share`` is that of their partners'.
    """

    content: Any
    share: float


@dataclass(frozen=True)
class Mixing:
    """The settings of mixup and cutmix. ``mixup_alpha``, ``cutmix_alpha``: of the beta distribution, 0 is off.

    ``mix_prob``: fraction of batches that are mixed; ``mix_switch_prob``: fraction of these that use cutmix, if both
    are on.
    """

    mixup_alpha: float
    cutmix_alpha: float
    mix_prob: float
    mix_switch_prob: float
    seed: int

    def draw(self, epoch: int, update: int) -> Mix | None:
        """Draw how to mix the batch of an update, the same on every rank; None if it is not mixed."""
        random = np.random.RandomState([self.seed % 2**32, self.seed // 2**32 % 2**32, epoch, update, _SALT])
        chance, switch, middle = random.random_sample(), random.random_sample(), random.random_sample(2).tolist()
        if chance >= self.mix_prob:
            return None
        cuts = self.cutmix_alpha > 0 and (self.mixup_alpha == 0 or switch < self.mix_switch_prob)
        alpha = self.cutmix_alpha if cuts else self.mixup_alpha
        return Mix(float(random.beta(alpha, alpha)), (middle[0], middle[1]) if cuts else None)


def share_with_partners(low: int, high: int, size: int, mix: Mix) -> tuple[int, int, Mix]:
    """The range of samples to read for those in [``low``, ``high``) of a batch of ``size``, and the mix for it."""
    begin, end = low - low % 2, min(high + high % 2, size)
    return begin, end, mix._replace(first=low - begin, last=high - begin)


def mixed(mix: Mix, inputs: Any, content: Any) -> tuple[Tensor, Any, Partners]:
    """Mix a batch: the rank's own inputs mixed, its own (inputs, targets), and their partners.

    inputs: (B, C, H, W) or (B, ...); content: (inputs, targets). Raises ConfigurationError for other inputs.
    """
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point() and (mix.box is None or inputs.ndim == 4)):
        raise ConfigurationError(
            "trainer.mixup_alpha and trainer.cutmix_alpha mix images (C, H, W), and mixup also other "
            "floating-point inputs. This data set provides neither. Set them to 0.",
            key="trainer.mixup_alpha" if mix.box is None else "trainer.cutmix_alpha",
        )
    number = torch.arange(len(inputs), device=inputs.device)
    partner = torch.where(number ^ 1 < len(inputs), number ^ 1, number)  # the last of an odd batch is alone
    window, other, share = slice(mix.first, mix.last), partner[mix.first : mix.last], mix.share
    if mix.box is None:
        mixture = inputs[window] * share + inputs[other] * (1 - share)
    else:
        rows, columns, share = box(mix, inputs.shape[2], inputs.shape[3])
        mixture = inputs[window].clone()
        mixture[:, :, rows, columns] = inputs[:, :, rows, columns][other]
    images, targets = content
    return mixture, (images[window], targets[window]), Partners((images[window], targets[other]), share)


def box(mix: Mix, height: int, width: int) -> tuple[slice, slice, float]:
    """Rows and columns of the pasted box, and the fraction of pixels outside it."""
    assert mix.box is not None
    side = (1 - mix.share) ** 0.5
    rows, columns = (
        slice(max(0, int(middle * size - side * size / 2)), min(size, int(middle * size + side * size / 2)))
        for middle, size in zip(mix.box, (height, width), strict=True)
    )
    return rows, columns, 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)


def refuse_mixing(task: Task, *, mixup: float, cutmix: float) -> None:
    """Raises ConfigurationError if samples are to be mixed that have weights of their own.

    ``mixup``, ``cutmix``: trainer.mixup_alpha and trainer.cutmix_alpha.
    """
    if (mixup or cutmix) and not task.counts_samples:
        raise ConfigurationError(
            "trainer.mixup_alpha, trainer.cutmix_alpha: the loss ignores or weights classes, so a mixed sample "
            "would have no single weight. Set them to 0, or leave out loss.ignore_index, loss.weight and samples whose "
            "label is ignored.",
            key="trainer.mixup_alpha" if mixup else "trainer.cutmix_alpha",
            value=mixup or cutmix,
        )
