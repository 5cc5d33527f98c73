"""Writes sharded checkpoints: each rank writes its own files into a temporary folder, which is then renamed.

Until then no existing file is touched, so a killed process leaves the previous checkpoint intact.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from platform import node
from typing import Any, NamedTuple

from manyheads.runner.checkpoint.background_save import GivenUp
from manyheads.runner.checkpoint.rank.lazy import RankGroup
from manyheads.runner.checkpoint.sharded import safetensors_file
from manyheads.runner.checkpoint.sharded.index import MOST_BYTES, Box, CheckpointIndex, FileDigest, Piece, TensorEntry
from manyheads.runner.checkpoint.sharded.rank.rank_share import (
    Held,
    RankShare,
    held,
    merged,
    parted,
    to_json,
    versions_of,
    without_absent,
)
from manyheads.runner.checkpoint.sharded.rank.shard_files import (
    AVERAGE,
    BEST,
    Chosen,
    link_best,
    write_file,
    write_index,
)
from manyheads.runner.checkpoint.sharded.safetensors_file import TensorKind
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder, remove, remove_leftovers, sync_folder, take_name, write_whole
from manyheads.runner.run.folder import aside

POLL = 0.01  # seconds between checks for a rank's note


class WrittenFiles(NamedTuple):
    """The files that a rank has written, and the pieces in them by their tensors' keys."""

    files: dict[str, FileDigest]
    pieces: list[tuple[str, Piece]]


class Save:
    """One rank's part in saving ``state`` as the folder ``path``. Creating one is a collective operation of all ranks.

    ``state``: tensors in it may be RankShares; other values are taken from the first rank that has them.
    """

    def __init__(self, path: Path, state: StateDict, ranks: RankGroup, *, step: int):
        self.path, self.step, self.rank = path, step, ranks.rank
        if (versions := versions_of(state.get("model"))) is not None:
            state = {**state, "versions": versions}
        shares: dict[str, RankShare] = {}
        structure = parted(state, shares)
        beside = path.name
        if ranks.rank == 0:
            make_folder(path.parent)
            remove_leftovers(path.parent)
            beside = aside(path.name)
            make_folder(path.parent / beside)
        gathered = ranks.gather((beside, structure, {key: held(key, share) for key, share in shares.items()}, node()))
        self.beside = path.with_name(gathered[0][0])  # rank 0 has created it by now
        self._ranks_here = sum(machine == node() for *_, machine in gathered)
        listed = [pieces for _, _, pieces, _ in gathered]
        self.kinds = kinds(listed)
        self.state = to_json(without_absent(merged([left for _, left, _, _ in gathered]), self.kinds))
        writers = _writers(listed)
        self.chosen = [
            Chosen(key, self.kinds[key], box, tensor)
            for key, share in shares.items()
            for box, tensor in share.pieces
            if writers[key, box] == ranks.rank
        ]

    @property
    def generation(self) -> str:
        """Identifies this save."""
        return self.beside.name.split(".")[-2]

    def copy(self, copied: Callable[[list[Any], int], list[Any]]) -> None:
        """Write copies of this rank's tensors. ``copied``: copies all, given the number of ranks on this machine."""
        copies = copied([piece.tensor for piece in self.chosen], self._ranks_here)
        self.chosen = [piece._replace(tensor=copy) for piece, copy in zip(self.chosen, copies, strict=True)]

    def write(self) -> WrittenFiles:
        """Write this rank's files. Raises OSError."""
        written = WrittenFiles({}, [])
        for name in ("model", "average", "state"):
            if of_name := [piece for piece in self.chosen if _file_of(piece.key) == name]:
                file = f"{name}-{self.rank:05}{safetensors_file.SUFFIX}"
                about = {"generation": self.generation, "step": str(self.step)}
                written.files[file], pieces = write_file(self.beside / file, of_name, about)
                written.pieces.extend(pieces)
        sync_folder(self.beside)
        return written

    def finish(self, everyone: Iterable[WrittenFiles], *, best: Path | None) -> None:
        """Write the index and rename the folder, on rank 0, after all ranks have written.

        ``best``: where to link its weights as the best checkpoint; None for nowhere.
        """
        files: dict[str, FileDigest] = {}
        pieces: dict[str, list[Piece]] = {key: [] for key in self.kinds}
        for written in everyone:
            files |= written.files
            for key, piece in written.pieces:
                pieces[key].append(piece)
        tensors = {key: TensorEntry(kind, tuple(pieces[key])) for key, kind in self.kinds.items()}
        index = CheckpointIndex(self.step, self.generation, self.state, tensors, files)
        write_index(self.beside, index)
        if best is not None:
            link_best(self.beside, best, index)
        take_name(self.beside, self.path)


def _file_of(key: str) -> str:
    if key.startswith(BEST):
        return "model"
    return "average" if key.startswith(AVERAGE) else "state"


def written(save: Save, ranks: RankGroup, is_wanted: Callable[[], bool] | None) -> list[WrittenFiles]:
    """Write this rank's files. ``is_wanted``: for ``written_beside`` training; None: training waits for all ranks."""
    return written_by_all(save, ranks) if is_wanted is None else written_beside(save, ranks, is_wanted)


def written_by_all(save: Save, ranks: RankGroup) -> list[WrittenFiles]:
    """Write this rank's files and wait for the others. Raises OSError on every rank if one could not write."""
    failure, written = None, None
    try:
        written = save.write()
    except OSError as error:
        failure = (error.errno, error.strerror, error.filename)
    everyone = ranks.gather((failure, written))
    for failure, _ in everyone:
        if failure is not None:
            raise OSError(*failure)
    return [written for _, written in everyone]


def written_beside(save: Save, ranks: RankGroup, is_wanted: Callable[[], bool]) -> list[WrittenFiles]:
    """Write this rank's files without collective operations, so that training can use them meanwhile.

    Each rank leaves a note of what it has written, which the first rank reads. The first rank returns what all have
    written, the others only their own. Raises OSError; GivenUp if ``is_wanted`` turns false while it waits.
    """
    notes = [save.beside / f"{rank}.json" for rank in range(ranks.world_size)]
    try:
        written = save.write()
        failure = None
    except OSError as error:
        written, failure = WrittenFiles({}, []), error
    if ranks.rank != 0:
        write_whole(notes[ranks.rank], json.dumps((failure and (failure.errno, failure.strerror), written)))
    if failure is not None:
        raise failure
    everyone = [written]
    for note in notes[1:] if ranks.rank == 0 else []:
        while not note.exists():
            if not is_wanted():
                raise GivenUp
            time.sleep(POLL)
        reason, written = json.loads(read_bytes(note, most=MOST_BYTES))
        if reason is not None:
            raise OSError(*reason, str(note.parent))
        remove(note)
        everyone.append(_written(*written))
    return everyone


def _written(files: dict[str, Any], pieces: list[Any]) -> WrittenFiles:
    """The content of a rank's note."""
    located = [(key, Piece(file, begin, Box(*map(tuple, box)))) for key, (file, begin, box) in pieces]
    return WrittenFiles({name: FileDigest(*part) for name, part in files.items()}, located)


def kinds(listed: list[dict[str, Held]]) -> dict[str, TensorKind]:
    """The type and shape of each tensor that any rank has, by key."""
    return {key: one.kind for pieces in listed for key, one in pieces.items()}


def _writers(listed: list[dict[str, Held]]) -> dict[tuple[str, Box], int]:
    """The rank that writes each piece: the first one that has it, or the least loaded if all have the same values."""
    holders: dict[tuple[str, Box], list[int]] = {}
    for rank, pieces in enumerate(listed):
        for key, one in pieces.items():
            for box in one.boxes:
                holders.setdefault((key, box), []).append(rank)
    load = [0] * len(listed)
    writers = {}
    for (key, box), ranks in holders.items():
        is_agreed = all(listed[rank][key].is_agreed for rank in ranks)
        writers[key, box] = rank = min(ranks, key=load.__getitem__) if is_agreed else ranks[0]
        load[rank] += max(1, box.numel)
    return writers
