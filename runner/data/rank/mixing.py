"""mixup and cutmix: each sample is mixed with another one of its global batch, and so is its loss.

Who goes with whom must not depend on how many ranks and micro-batches share a batch. Its order is drawn anew in each
epoch, so that neighbours, the first and the second, the third and the fourth, are a pair as random as any other. Pairs
stay together where shares are even; at the border of an odd one a rank reads the other half as well, and drops it
again: two samples more at most for a micro-batch, and for most runs none.

Sources: Zhang et al. 2017 (https://arxiv.org/abs/1710.09412), Yun et al. 2019 (https://arxiv.org/abs/1905.04899); one
draw for a batch, and switching between the two, as timm does it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyheads.runner.run.errors import ConfigurationError

_SALT = 0x6D6978  # apart from what orders an epoch


class Mix(NamedTuple):
    """What happens to a batch. ``share``: of each sample's own; ``box``: for cutmix the middle (y, x) of what comes in.

    Of the samples that were read those from ``first`` to before ``last`` are the rank's own.
    """

    share: float
    box: tuple[float, float] | None
    first: int = 0
    last: int = 0


@dataclass
class Partners:
    """The batch as the samples' partners have it, (inputs, targets), and the share that is not theirs."""

    content: Any
    share: float


@dataclass(frozen=True)
class Mixing:
    """The trainer's keys: ``mixup_alpha``, ``cutmix_alpha``, 0 for without.

    ``mix_prob``: share of batches that are mixed; ``mix_switch_prob``: of these that are cut where both are chosen.
    """

    mixup_alpha: float
    cutmix_alpha: float
    mix_prob: float
    mix_switch_prob: float
    seed: int

    def draw(self, epoch: int, update: int) -> Mix | None:
        """The same on every rank; None for a batch that stays as it is."""
        random = np.random.RandomState([self.seed % 2**32, self.seed // 2**32 % 2**32, epoch, update, _SALT])
        chance, switch, middle = random.random_sample(), random.random_sample(), random.random_sample(2).tolist()
        if chance >= self.mix_prob:
            return None
        cuts = self.cutmix_alpha > 0 and (self.mixup_alpha == 0 or switch < self.mix_switch_prob)
        alpha = self.cutmix_alpha if cuts else self.mixup_alpha
        return Mix(float(random.beta(alpha, alpha)), (middle[0], middle[1]) if cuts else None)


def share_with_partners(low: int, high: int, size: int, mix: Mix) -> tuple[int, int, Mix]:
    """What to read of a batch of ``size`` for samples ``low`` to before ``high``: from, to, and a mix that says so."""
    begin, end = low - low % 2, min(high + high % 2, size)
    return begin, end, mix._replace(first=low - begin, last=high - begin)


def mixed(mix: Mix, inputs: Any, content: Any) -> tuple[Tensor, Any, Partners]:
    """The rank's own samples, mixed: inputs, (inputs, targets), and their partners. inputs: (B, C, H, W) or (B, ...).

    Raises ConfigurationError where inputs are no such tensor.
    """
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point() and (mix.box is None or inputs.ndim == 4)):
        raise ConfigurationError(
            "trainer.mixup_alpha and trainer.cutmix_alpha mix images (C, H, W), and mixup also other "
            "floating-point inputs. The inputs of this data are neither. Set them to 0."
        )
    number = torch.arange(len(inputs), device=inputs.device)
    partner = torch.where(number ^ 1 < len(inputs), number ^ 1, number)  # the last of an odd batch is alone
    own, other, share = slice(mix.first, mix.last), partner[mix.first : mix.last], mix.share
    if mix.box is None:
        found = inputs[own] * share + inputs[other] * (1 - share)
    else:
        rows, columns, share = box(mix, inputs.shape[2], inputs.shape[3])
        found = inputs[own].clone()
        found[:, :, rows, columns] = inputs[:, :, rows, columns][other]
    images, targets = content
    return found, (images[own], targets[own]), Partners((images[own], targets[other]), share)


def box(mix: Mix, height: int, width: int) -> tuple[slice, slice, float]:
    """Rows and columns of what is pasted, and the share of pixels that is not."""
    assert mix.box is not None
    side = (1 - mix.share) ** 0.5
    rows, columns = (
        slice(max(0, int(middle * size - side * size / 2)), min(size, int(middle * size + side * size / 2)))
        for middle, size in zip(mix.box, (height, width), strict=True)
    )
    pasted = (rows.stop - rows.start) * (columns.stop - columns.start)
    return rows, columns, 1 - pasted / (height * width)


def build_mixing(config: dict[str, Any]) -> Mixing | None:
    """What the config's trainer section asks for; None for nothing."""
    trainer = config["trainer"]
    if not (trainer.get("mixup_alpha") or trainer.get("cutmix_alpha")):
        return None
    keys = ("mixup_alpha", "cutmix_alpha", "mix_prob", "mix_switch_prob")
    return Mixing(**{key: trainer[key] for key in keys}, seed=config["seed"])
