"""What runs on the fake GPU: every option of the groups whose code is part of an update, and what a run asks for.

Each option in conf/ is a case; what it needs besides stands here. So a new one is examined the day it is added, or
fails because it is missing here.
"""

from collections.abc import Mapping

from torch import Tensor

from manyheads.runner.config.lookup import options
from tests.loop.own_step.configs import GAN, TASKS
from tests.task import denominators
from tests.task.zoo import OwnLoss

Overrides = tuple[str, ...]

GROUPS = ("task", "parallel", "precision", "optimizer", "metrics", "callbacks")
FP16 = ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024")
GPT = (
    *("task=language_model", "data=stdlib_text", "data.max_tokens=4000", "data.block_size=16", "optimizer=adamw"),
    *("model=gpt", "model.depth=2", "model.width=16", "model.heads=2"),
)
CUSTOM = tuple(override for override in denominators.SHARED if override != "precision=fp64")
MEASURED = (
    *("task=own_loss", "task.loss_over=next_tokens", "model._target_=tests.fake_gpu.cases.Measuring"),
    *("data._target_=tests.task.zoo.Causal", "+task.metrics.spread=min"),
)
NEEDS: Mapping[str, Overrides] = {  # by option
    "task=auto": ("data=table", "data.root=houses.csv", "data.target=price", "model=mlp"),
    "task=custom": TASKS["byol"],
    "task=segmentation": (*CUSTOM, *denominators.TASKS["segmentation"]),
    "task=own_loss": (*CUSTOM, *denominators.TASKS["own loss"]),
    "task=regression": ("data=diabetes", "model=mlp"),
    "task=multilabel": ("data=shapes_multilabel", "data.train_samples=64", "data.val_samples=8"),
    "task=language_model": GPT[1:],
    "parallel=fsdp": GPT,
    "parallel=tensor": GPT,
    "parallel=pipeline": (*GPT, "trainer.grad_accumulation=2"),
    "parallel=mesh": GPT,
    "parallel=local_sgd": ("parallel.start=1", "parallel.period=1"),
    "precision=amp": FP16,
    "optimizer=custom": ("optimizer._target_=torch.optim.RMSprop",),
    "optimizer=several": GAN,
    "metrics=[auroc]": (*CUSTOM, *denominators.CLASSES),
}
FEATURES: Mapping[str, Overrides] = {  # of the loop, of losses, and of the update's parts
    "accumulation": ("trainer.grad_accumulation=2", "trainer.clip_norm=1", *FP16),
    "clipping": ("trainer.clip_norm=1",),
    "clipped values": ("trainer.clip_value=1",),
    "master weights": (*FP16, "precision.level=O2"),
    "half, adamw": (*FP16, "optimizer=adamw"),
    "EMA": ("trainer.ema_decay=0.9",),
    "SAM": ("trainer.sam_rho=0.05",),
    "mixing": ("trainer.mixup_alpha=0.2", "trainer.cutmix_alpha=1"),
    "smoothing": ("trainer.label_smoothing=0.1",),
    "recomputation": (*GPT, "trainer.recompute=[auto]"),
    "channels last": ("trainer.channels_last=true", "precision=bf16"),
    "an error for NaN": ("trainer.on_nan=error",),
    "NaN skipped": ("trainer.on_nan=skip",),
    "spikes": ("trainer.on_spike=skip", "trainer.spike_window=10"),
    "verification": ("trainer.verify_every=1",),
    "frozen": ("parameters.freeze=[features.0.*]",),
    "tokens, accumulated": (*GPT, "trainer.grad_accumulation=2"),
    "iou of pixels": (*CUSTOM, *denominators.TASKS["segmentation"], "metrics=[iou]"),
    "numbers of an own loss": (
        *CUSTOM,
        *denominators.TASKS["own loss"],
        "model._target_=tests.fake_gpu.cases.Measuring",
        "+task.metrics.spread=min",
    ),
    **{name: (*CUSTOM, *overrides) for name, overrides in denominators.TASKS.items()},
    **{f"steps, {name}": overrides for name, overrides in TASKS.items()},
}


class Measuring(OwnLoss):
    """Also returns another number."""

    def forward(self, *, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = super().forward(input_ids=input_ids, labels=labels)
        return {**outputs, "spread": outputs["logits"].std()}


def cases() -> dict[str, Overrides]:
    """The overrides of each case, by name."""
    of_options = [
        f"{group}=[{option}]" if group in ("metrics", "callbacks") else f"{group}={option}"
        for group in GROUPS
        for option in options(group)
    ]
    return {**{name: (name, *NEEDS.get(name, ())) for name in of_options}, **FEATURES}
