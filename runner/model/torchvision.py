"""Declarations of the models of torchvision."""

from manyheads.runner.model.model_option import ModelOption

ALONE = ("vit_b_16",)  # its dropout is 0 by default


class TorchvisionOption(ModelOption):
    """A torchvision model by its name."""

    @property
    def treats_samples_alone(self) -> bool:
        return self.name in ALONE
