"""Classes that anyone's config may name: this project's options, and a short list of reviewed classes.

No class of the list opens a file, imports a module by name or calls its arguments. Review a class before adding it.
"""

from functools import cache
from typing import Any

from manyheads.runner.config.lookup import CONF, own_sections, read
from manyheads.runner.option.declared import ENTRIES, GROUPS
from manyheads.runner.option.tree import OPTION

_LAYERS = (
    "Linear Flatten Unflatten Identity Dropout Dropout2d Conv1d Conv2d ConvTranspose2d BatchNorm1d BatchNorm2d "
    "LayerNorm GroupNorm ReLU GELU SiLU LeakyReLU Sigmoid Tanh Softmax MaxPool2d AvgPool2d AdaptiveAvgPool2d"
)
READ = {
    "model": {"torch.nn": _LAYERS},
    "loss": {
        "torch.nn": "CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss "
        "MultiMarginLoss MultiLabelSoftMarginLoss KLDivLoss PoissonNLLLoss"
    },
    "optimizer": {"torch.optim": "SGD Adam AdamW Adamax NAdam RAdam RMSprop Adagrad Adadelta ASGD Rprop"},
    "scheduler": {
        "torch.optim.lr_scheduler": "StepLR MultiStepLR ExponentialLR ConstantLR LinearLR PolynomialLR "
        "CosineAnnealingLR CosineAnnealingWarmRestarts OneCycleLR"
    },
    "data": {"torchvision.datasets": "FakeData"},
    "logger": {"manyheads.runner.logger.rank.tensorboard": "TensorBoard"},
    "transforms": dict.fromkeys(
        ("torchvision.transforms", "torchvision.transforms.v2"),
        "RandomHorizontalFlip RandomVerticalFlip RandomCrop CenterCrop RandomResizedCrop Resize Normalize "
        "ToTensor ColorJitter RandomErasing RandomRotation",
    ),
}


@cache
def own_declarations(group: str) -> frozenset[str]:
    """The names of the classes by which the project's own options of this group declare themselves."""
    options = own_sections(group) if group in (*GROUPS, *ENTRIES) else []
    return frozenset(name for option in options if (name := option.get(OPTION)) is not None)


def is_harmless(group: str | None, target: str) -> bool:
    """Whether any config may name ``target`` in this group; None for a nested key, where any kind of class may be."""
    return is_own_class(group, target) or is_reviewed(group, target)


def is_own_class(group: str | None, target: Any) -> bool:
    """Whether it is the class of one of the project's own options of this group."""
    return group is not None and isinstance(target, str) and target in _of_conf(group)


def is_reviewed(group: str | None, target: Any) -> bool:
    """Whether ``target`` is one of READ in this group, so that any config may also choose its arguments."""
    return isinstance(target, str) and any(
        target in _read(kind) for kind in ([group] if group is not None else READ) if kind in READ
    )


@cache
def _read(kind: str) -> set[str]:
    return {f"{module}.{name}" for module, names in READ[kind].items() for name in names.split()}


@cache
def _of_conf(group: str) -> set[str]:
    """The targets of the project's own options."""
    if group == "loss":
        return {read(CONF / "config.yaml")["loss"]["_target_"]}
    return {section["_target_"] for section in own_sections(group)} - {"???"}
