"""The update of one device as data: the input of every prediction."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Unit:
    """A part of the model.

    ``bytes``: of its weights in fp32, and of its gradients; ``share``: its fraction of the model's computing;
    ``activations``: bytes of its outputs for one micro-batch.
    """

    bytes: float
    share: float
    activations: float = 0.0


@dataclass(frozen=True)
class DeviceUpdate:
    """The update of one device.

    ``units``: in the order of the forward pass.
    ``forward``, ``backward``: seconds of the entire model for one micro-batch.
    ``optimizer``: seconds of a step for all weights.
    ``rest``: seconds of everything else that each rank does by itself in each update.
    ``micro_batches``: in an update. ``samples``: in a micro-batch.
    ``loading``: seconds in which one process loads a sample.
    ``loaders``: processes that load for each rank; 0 if the rank itself loads.
    ``cores``: of a machine; 0 if unknown.
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

    @property
    def bytes(self) -> float:
        """Bytes of all weights in fp32."""
        return sum(unit.bytes for unit in self.units)

    def scaled(self, factor: float) -> "DeviceUpdate":
        """The same update on a device that takes ``factor`` times as long."""
        return replace(
            self,
            forward=self.forward * factor,
            backward=self.backward * factor,
            optimizer=self.optimizer * factor,
            rest=self.rest * factor,
        )

    def waiting_for_data(self, *, ranks_per_machine: int, ranks_share: float = 1.0) -> float:
        """Seconds to load the batch of an update.

        ``ranks_share``: the number of devices for which one rank loads.
        """
        samples = self.samples * self.micro_batches * ranks_share
        processes = float(max(1, self.loaders))
        if self.cores:
            processes = min(processes, self.cores / ranks_per_machine)
        return samples * self.loading / processes
