"""What the models of torchvision declare that the rest of the project makes use of."""

from manyheads.runner.model.option import ModelOption

ALONE = ("vit_b_16",)  # whose dropout is 0 by default


class TorchvisionOption(ModelOption):
    """A model of torchvision.models by its name."""

    @property
    def treats_samples_alone(self) -> bool:
        return self.section.get("name") in ALONE
