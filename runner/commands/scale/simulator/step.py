"""An update of one device, described as data: the input of every prediction."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Unit:
    """A part of the model, in the order of the forward pass.

    ``bytes``: of its weights in fp32, which is also what its gradients take; ``share``: of the model's computing;
    ``activations``: bytes that it hands on for one micro-batch.
    """

    bytes: float
    share: float
    activations: float = 0.0


@dataclass(frozen=True)
class Step:
    """An update of one device.

    ``forward``, ``backward``: seconds of the whole model for one micro-batch; ``optimizer``: of a step for all
    weights; ``rest``: of everything else that every rank does alone in each update. ``micro_batches``: of an update;
    ``samples``: of a micro-batch. ``loading``: seconds of one process to load a sample, ``loaders``: processes of each
    rank, 0 if the rank itself loads; ``cores``: of a machine, 0 if unknown. ``spread``: how much longer than the mean
    rank one in e ranks takes, as a fraction; None if it was not measured.
    """

    units: tuple[Unit, ...]
    forward: float
    backward: float
    optimizer: float = 0.0
    rest: float = 0.0
    micro_batches: int = 1
    samples: float = 1.0
    loading: float = 0.0
    loaders: int = 0
    cores: int = 0
    spread: float | None = None

    @property
    def bytes(self) -> float:
        return sum(unit.bytes for unit in self.units)

    def scaled(self, factor: float) -> "Step":
        """The same update on a device that takes ``factor`` times as long for it."""
        return replace(
            self,
            forward=self.forward * factor,
            backward=self.backward * factor,
            optimizer=self.optimizer * factor,
            rest=self.rest * factor,
        )

    def waiting_for_data(self, *, ranks_per_machine: int, ranks_share: float = 1.0) -> float:
        """Seconds between two updates' batches, if nothing else took any time.

        ``ranks_share``: how many devices one rank loads for.
        """
        samples = self.samples * self.micro_batches * ranks_share
        processes = float(max(1, self.loaders))
        if self.cores:
            processes = min(processes, self.cores / ranks_per_machine)
        return samples * self.loading / processes
