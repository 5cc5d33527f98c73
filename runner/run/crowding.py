"""How much of the cores that a run asked for other programs used, as recorded in its folder, and what would help."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted


@dataclass(frozen=True)
class Crowding:
    """Averages over ``seconds`` in which a run's processes, on this machine, waited for cores.

    ``others``: cores that other programs used, of ``cores``; ``waited``: the fraction of the time in which the run's
    threads could have computed for which they waited for a core; ``throttled``: the fraction of the time for which the
    CPU quota of its control group was used up; ``stolen``: the fraction of the cores' time that the machine's host gave
    to others; ``threads``: of each rank; ``loaders``: processes of each rank, at most.
    """

    seconds: float
    cores: int
    others: float
    waited: float
    throttled: float
    stolen: float
    threads: int
    loaders: int

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """That of the run in ``folder``; None if it had the cores that it asked for."""
        try:
            content = read_json(RunFolder(folder).crowding)
            return cls(**{name: kind(content[name]) for name, kind in cls.__annotations__.items()})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: RunFolder) -> None:
        """Record it. Raises OSError."""
        folder.write_json(folder.crowding, asdict(self))

    @property
    def sentence(self) -> str:
        """What happened, and what would help."""
        if self.throttled > max(self.stolen, self.others / self.cores):
            quota = f"the CPU quota of this run's control group is used up {self.throttled:.0%} of the time"
            return f"{quota}: {self._remedy}"
        if self.stolen > self.others / self.cores:
            cause = f"this machine's host gives {self.stolen:.0%} of the time of its cores to others"
        else:
            cause = f"other programs use {self.others:.1f} of {self.cores} cores"
        return f"{cause}, and this run waits for cores {self.waited:.0%} of its time: {self._remedy}"

    @property
    def _remedy(self) -> str:
        if self.threads > 1:
            return "launcher.threads_per_rank=1 may be faster"
        if self.loaders > 1:
            return "data.num_workers=1 may be faster"
        return "it would be faster on idle cores"


def crowded_runs(folder: Path) -> str | None:
    """The runs below ``folder`` that lacked cores, in a sentence about the one that waited most; None without any."""
    names, worst = crowded({str(path): path.parent for path in folder.rglob(RunFolder(folder).crowding.name)})
    if worst is None:
        return None
    return f"{counted(len(names), 'run')} lacked cores. The one that waited most: {worst.sentence}."


def crowded(folders: Mapping[str, Path]) -> tuple[list[str], Crowding | None]:
    """The names of the runs in these folders that lacked cores, and how the one that waited most did."""
    recorded = {name: crowding for name, path in folders.items() if (crowding := Crowding.read(path)) is not None}
    return [*recorded], max(recorded.values(), key=lambda crowding: crowding.waited, default=None)
