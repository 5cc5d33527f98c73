"""Writing sharded checkpoints: each rank writes its own files into a temporary folder, which is then renamed.

Until then no existing file is touched, so a killed process leaves the previous checkpoint intact.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.runner.checkpoint.flight import GivenUp
from manyheads.runner.checkpoint.sharded import index as index_file
from manyheads.runner.checkpoint.sharded import safetensors
from manyheads.runner.checkpoint.sharded.boxes import Box
from manyheads.runner.checkpoint.sharded.index import Entry, Index, Part, Piece
from manyheads.runner.checkpoint.sharded.rank.read import Ranks, bytes_of, real
from manyheads.runner.checkpoint.sharded.rank.share import (
    Held,
    Share,
    held,
    merged,
    parted,
    to_json,
    versions_of,
    without_absent,
)
from manyheads.runner.checkpoint.sharded.safetensors import Kind
from manyheads.runner.run.data_files import no_link, open_entry
from manyheads.runner.run.files import aside, remove_leftovers, sync_folder, take_name, write_whole

MODEL = "model/"  # begins the keys of weights
BEST = (MODEL, "progress/")  # what the best one needs, which has files of its own
AVERAGE = "average/weights/"  # what it has for the weights where evaluations are of their average
PARTS_OF_BEST = ("version", "versions", "model", "progress")
POLL = 0.01  # seconds between two looks for a rank's note


class Written(NamedTuple):
    """What a rank has written: its files, and the pieces in them by their tensors' keys."""

    files: dict[str, Part]
    pieces: list[tuple[str, Piece]]


class Chosen(NamedTuple):
    """A piece that this rank is to write."""

    key: str
    kind: Kind
    box: Box
    tensor: Any  # may still be on the disk

    @property
    def name(self) -> str:
        """In its file: the tensor's own where it is the whole of it."""
        name = self.key.removeprefix(MODEL)
        return name if self.box.shape == self.kind.shape else f"{name}{self.box}"

    @property
    def bytes(self) -> memoryview:
        return bytes_of(real(self.tensor).detach().cpu().contiguous())


class Save:
    """One rank's part in a save of ``state`` as the folder ``place``. All ranks make theirs together.

    ``state``: tensors in it may be Shares; what is no tensor is taken from the first rank that has it.
    """

    def __init__(self, place: Path, state: dict[str, Any], ranks: Ranks, *, step: int):
        self.place, self.step, self.rank = place, step, ranks.rank
        if (versions := versions_of(state.get("model"))) is not None:
            state = {**state, "versions": versions}
        shares: dict[str, Share] = {}
        own = parted(state, shares)
        beside = place.name
        if ranks.rank == 0:
            place.parent.mkdir(exist_ok=True)
            remove_leftovers(place.parent)
            beside = aside(place)
            (place.parent / beside).mkdir()
        said = ranks.gather((beside, own, {key: held(key, share) for key, share in shares.items()}))
        self.beside = place.with_name(said[0][0])  # which is there by now
        listed = [found for _, _, found in said]
        self.kinds = kinds(listed)
        self.state = to_json(without_absent(merged([left for _, left, _ in said]), self.kinds))
        writers = _writers(listed)
        self.chosen = [
            Chosen(key, self.kinds[key], box, tensor)
            for key, share in shares.items()
            for box, tensor in share.pieces
            if writers[key, box] == ranks.rank
        ]

    @property
    def generation(self) -> str:
        """Of this save alone."""
        return self.beside.name.split(".")[-2]

    def copy(self) -> None:
        """From here on the tensors may change: those that this rank writes are kept, on the CPU."""
        self.chosen = [each._replace(tensor=each.tensor.detach().to("cpu", copy=True)) for each in self.chosen]

    def write(self) -> Written:
        """This rank's files. Raises OSError."""
        written = Written({}, [])
        for name in ("model", "average", "state"):
            of_name = [each for each in self.chosen if _file_of(each.key) == name]
            if of_name:
                file = f"{name}-{self.rank:05}{safetensors.SUFFIX}"
                about = {"generation": self.generation, "step": str(self.step)}
                part, pieces = write_file(self.beside / file, of_name, about)
                written.files[file] = part
                written.pieces.extend(pieces)
        sync_folder(self.beside)
        return written

    def finish(self, everyone: Iterable[Written], *, best: Path | None) -> None:
        """Give the folder its name, and with ``best`` its weights that one too; once all have written, on rank 0."""
        files: dict[str, Part] = {}
        pieces: dict[str, list[Piece]] = {key: [] for key in self.kinds}
        for written in everyone:
            files |= written.files
            for key, piece in written.pieces:
                pieces[key].append(piece)
        tensors = {key: Entry(kind, tuple(pieces[key])) for key, kind in self.kinds.items()}
        index = Index(self.step, self.generation, self.state, tensors, files)
        write_index(self.beside, index)
        if best is not None:
            link_best(self.beside, best, index)
        take_name(self.beside, self.place)


def _file_of(key: str) -> str:
    if key.startswith(BEST):
        return "model"
    return "average" if key.startswith(AVERAGE) else "state"


def whole_size(state: dict[str, Any], ranks: Ranks) -> int:
    """Bytes of all tensors that the ranks have between them; all of them call this."""
    shares: dict[str, Share] = {}
    parted(state, shares)
    listed = ranks.gather({key: held(key, share) for key, share in shares.items()})
    return sum(kind.size for kind in kinds(listed).values())


def written_by_all(save: Save, ranks: Ranks) -> list[Written]:
    """Write this rank's files, and wait for the others. Raises OSError on each where one could not."""
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


def written_beside(save: Save, ranks: Ranks, is_wanted: Callable[[], bool]) -> list[Written]:
    """The same while the ranks exchange other things: each leaves a note of what it has written, the first reads them.

    The first rank returns all, the others nothing. Raises GivenUp when nobody wants it any more.
    """
    notes = [save.beside / f"{rank}.json" for rank in range(ranks.world_size)]
    try:
        written = save.write()
        failure = None
    except OSError as error:
        written, failure = Written({}, []), error
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
        reason, written = json.loads(note.read_bytes())
        if reason is not None:
            raise OSError(*reason, str(note.parent))
        note.unlink()
        everyone.append(_written(*written))
    return everyone


def _written(files: dict[str, Any], pieces: list[Any]) -> Written:
    """What a note says."""
    found = [(key, Piece(file, begin, Box(*map(tuple, box)))) for key, (file, begin, box) in pieces]
    return Written({name: Part(*part) for name, part in files.items()}, found)


def kinds(listed: list[dict[str, Held]]) -> dict[str, Kind]:
    """Of all tensors that the ranks have between them."""
    return {key: one.kind for found in listed for key, one in found.items()}


def _writers(listed: list[dict[str, Held]]) -> dict[tuple[str, Box], int]:
    """Who writes each piece: the first rank that has it, or of those that have the same whoever has least to do."""
    holders: dict[tuple[str, Box], list[int]] = {}
    for rank, found in enumerate(listed):
        for key, one in found.items():
            for box in one.boxes:
                holders.setdefault((key, box), []).append(rank)
    load = [0] * len(listed)
    writers = {}
    for (key, box), ranks in holders.items():
        is_agreed = all(listed[rank][key].is_agreed for rank in ranks)
        writers[key, box] = rank = min(ranks, key=load.__getitem__) if is_agreed else ranks[0]
        load[rank] += max(1, box.numel)
    return writers


def write_file(path: Path, chosen: list[Chosen], about: dict[str, str]) -> tuple[Part, list[tuple[str, Piece]]]:
    """A new file of tensors, synced. Raises OSError."""
    by_name = {each.name: each for each in chosen}
    kinds = safetensors.by_size((name, each.kind._replace(shape=each.box.shape)) for name, each in by_name.items())
    begin, begins = safetensors.header(kinds, about)
    digest, size = hashlib.sha256(begin), len(begin)
    with open(path, "xb", opener=open_entry_of, buffering=0) as file:
        whole_write(file, begin)
        for name in kinds:
            content = by_name[name].bytes
            whole_write(file, content)
            digest.update(content)
            size += len(content)
        os.fsync(file.fileno())
    pieces = [(each.key, Piece(path.name, begins[name], each.box)) for name, each in by_name.items()]
    return Part(size, digest.hexdigest()), pieces


def open_entry_of(path: str, flags: int) -> int:
    """An opener for ``open()`` that creates a new file, in a folder that is not a link."""
    return open_entry(Path(path), flags)


def whole_write(file: Any, content: Any) -> None:
    """All of it, however much the disk takes at once."""
    rest = memoryview(content)
    while len(rest):
        rest = rest[file.write(rest) :]


def write_index(folder: Path, index: Index) -> None:
    """Written last: with it a folder is a checkpoint."""
    with open(folder / index_file.NAME, "xb", opener=open_entry_of, buffering=0) as file:
        whole_write(file, index.content())
        os.fsync(file.fileno())
    sync_folder(folder)


def link_best(folder: Path, best: Path, index: Index) -> None:
    """The weights of a checkpoint, without its other parts, under a further name of the same files."""
    tensors = {key: entry for key, entry in index.tensors.items() if key.startswith(BEST)}
    if index.state.get("average", {}).get("is_evaluated"):
        tensors = {key: index.tensors.get(AVERAGE + key.removeprefix(MODEL), entry) for key, entry in tensors.items()}
    names = sorted({piece.file for entry in tensors.values() for piece in entry.pieces})
    state = {name: value for name, value in index.state.items() if name in PARTS_OF_BEST}
    beside = best.with_name(aside(best))
    beside.mkdir()
    for name in names:
        os.link(folder / name, beside / name, follow_symlinks=False)
    files = {name: index.files[name] for name in names}
    write_index(beside, Index(index.step, index.generation, state, tensors, files))
    take_name(beside, best)


def copy_folder(path: Path, place: Path) -> None:
    """A whole copy of a checkpoint that is a folder, in place of none."""
    if place.exists():
        return
    beside = place.with_name(aside(place))
    beside.mkdir()
    for name in [*index_file.read(path).files, index_file.NAME]:
        with open(path / name, "rb", opener=no_link) as file, open(beside / name, "xb", opener=open_entry_of) as copy:
            shutil.copyfileobj(file, copy, 2**24)
            copy.flush()
            os.fsync(copy.fileno())
    sync_folder(beside)
    take_name(beside, place)
