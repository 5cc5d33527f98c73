"""The run folder: one class with every path in it, which reads and writes its files."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Self

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import checkpoint_places
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, no_link, read_bytes, read_json
from manyheads.runner.run.files import exclusive, make_folder, matching, remove, remove_leftovers, write_whole
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.frozen_config import FORMAT, FrozenConfig
from manyheads.runner.run.json_types import ProvenanceJson, ResultJson, check, right

RUN_DIR, SWEEP_DIR = "hydra.run.dir=", "hydra.sweep.dir="  # by which a user names a folder
_FORMAT = re.compile(rb"^format: *(\d{1,9}) *$", re.MULTILINE)
LEDGER = "ledger.jsonl"  # in the folder of a sweep
FLIGHT = "nccl_rank_"  # begins the names of the files below logs/ in which NCCL says what it did last


def _inside(name: str) -> "cached_property[Path]":
    """A path in a run folder, computed when it is first needed: for most of thousands of folders it never is."""
    return cached_property(lambda folder: folder.path / name)


class RunFolder(FrozenConfig):
    """The folder of one run; docs/run-folder.md says what each file holds."""

    COMPOSED = ".hydra/config.yaml"  # what Hydra composed, from which run.yaml is frozen

    composed = _inside(COMPOSED)
    provenance = _inside("provenance.json")
    description = _inside("model.json")
    code_diff = _inside("code.diff")
    code = _inside("code")
    log = _inside("run.log")
    logs = _inside("logs")
    heartbeat = _inside("logs/heartbeat")
    threads = _inside("threads.json")  # how many the ranks have chosen, if the config leaves it to them
    crowding = _inside("crowding.json")  # by other programs, if there was any
    steps = _inside("steps.csv")
    epochs = _inside("epochs.csv")
    evaluations = _inside("evaluations.csv")  # those within epochs, if there are any
    samples = _inside("samples.csv")  # which samples were taken
    skipped = _inside("skipped.csv")  # samples that could not be read, if they may be skipped
    spikes = _inside("spikes.csv")  # the updates that were skipped, if they may be
    gpu = _inside("gpu.csv")
    host = _inside("host.csv")
    tensorboard = _inside("tensorboard")
    pictures = _inside("pictures")
    checkpoints = _inside("checkpoints")
    parity = _inside("parity")
    corruption = _inside("corruption")  # gradients that differ between two computations, if any do
    result = _inside("result.json")

    def __init__(self, path: str | Path):
        self.path = _settled(Path(path))

    @classmethod
    def of_checkpoint(cls, checkpoint: str | Path) -> Self:
        """The folder of the run that wrote a checkpoint, as long as that lies where it was written."""
        return cls(Path(checkpoint).parent.parent)

    def __str__(self) -> str:
        """The folder as a person would type it: relative if it is below the working directory, else absolute.

        It is the working directory itself with ``hydra.job.chdir=true``, and "." would name no run in the user's shell.
        """
        below = self.path.is_relative_to(Path.cwd()) and self.path != Path.cwd()
        return str(self.path.relative_to(Path.cwd()) if below else self.path)

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint to resume from, a file or the folder of a sharded one; last.pt if there is none yet."""
        return checkpoint_places.last(self.checkpoints)

    @property
    def best_checkpoint(self) -> Path:
        """The checkpoint with the best weights, a file or a folder; best.pt if there is none yet."""
        return checkpoint_places.best(self.checkpoints)

    def holds_run(self) -> bool:
        """Whether the folder has a run, or a config that Hydra composed for one."""
        return self.config.exists() or (self.path / ".hydra").exists()

    @property
    def tables(self) -> tuple[Path, ...]:
        """The tables that ranks write row by row, and truncate when a run is resumed."""
        return self.steps, self.epochs, self.evaluations, self.samples, self.skipped, self.spikes

    def is_planned(self) -> bool:
        """Whether a run was frozen here that has never been started, as a sweep does with all its jobs."""
        return self.config.exists() and not self.provenance.exists()

    def remove_plan(self) -> None:
        """Remove what planning left of a run that has never been started; does nothing for any other."""
        if not self.provenance.exists():
            remove(self.config)
            remove(self.composed.parent)

    def refuse_second_run(self) -> None:
        """Raises ConfigurationError if a run was already frozen here, as when a sweep's jobs share a folder."""
        if self.config.exists():
            raise ConfigurationError(
                f"{self} already holds a run. Give each run a folder of its own: hydra.run.dir, hydra.sweep.subdir."
            )

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank_{rank}.log"

    def refuse_other_format(self) -> None:
        """Raises ConfigurationError for a run that another version recorded, which only that version can run.

        A folder with neither a format nor provenance.json was recorded by none, and is checked like others' configs.
        """
        match = _FORMAT.search(self.config_content())
        if (match is None and not self.provenance.exists()) or (match is not None and int(match[1]) == FORMAT):
            return
        try:
            commit = right(read_json(self.provenance), ProvenanceJson).get("commit")
        except (OSError, ConfigurationError):
            commit = None
        with_it = f"Check out commit {commit}, which recorded it" if commit else "Use the version that recorded it"
        raise ConfigurationError(
            f"{self} was recorded by a version whose run.yaml has another format. {with_it}, or start a new run."
        )

    def write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        """Replace a file; values that JSON lacks become text. Raises OSError."""
        write_whole(path, json.dumps(content, indent=2, default=str) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time may work on a run. Raises ConfigurationError when another one does."""
        if not self.config.exists():
            raise ConfigurationError(f"{self} holds no run: {self.config.name} does not exist.")
        with exclusive(self.config, of=self):
            yield

    def sync_tables(self) -> None:
        """Sync the rows written so far, so that they survive a power cut like the checkpoint that relies on them."""
        for path in self.tables:
            with suppress(FileNotFoundError), open(path, "rb", opener=no_link) as file:
                os.fsync(file.fileno())

    def read_result(self) -> ResultJson | None:
        """result.json, or None while the run has not ended."""
        try:
            return check(read_json(self.result), ResultJson, self.result)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def completed(self) -> ResultJson | None:
        """The result of a completed run; None if it has not completed, or its parent was killed before recording it."""
        result = self.read_result() or {}
        return result if result.get("status") == "completed" and "wall_seconds" in result else None

    def clear_attempt(self) -> None:
        """Remove what an earlier attempt at this run recorded about its end; its logs and checkpoints are kept."""
        make_folder(self.logs)
        remove_leftovers(self.path)
        for path in [self.result, *matching(self.logs, f"{FLIGHT}*")]:
            remove(path)

    def chosen_threads(self) -> int | None:
        """How many CPU threads each rank has chosen; None if the config sets it, or the run has not begun to train."""
        try:
            return max(1, int(read_json(self.threads)["threads"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def kept_threads(self) -> list[str]:
        """The override by which another run has as many threads, and so rounds as this one; empty without any."""
        threads = self.chosen_threads()
        return [] if threads is None else [f"launcher.threads_per_rank={threads}"]

    def copied_code(self) -> dict[str, bytes]:
        """The files in code/, with their contents, by their paths in the run. Raises ConfigurationError for a link.

        Without bytecode beside them, which is never read (``run/source_file``).
        """
        contents = {}
        with suppress(FileNotFoundError), Folder(self.code) as held:
            for name, status in held.walk():
                if not S_ISDIR(status.st_mode) and name.parent.name != "__pycache__":
                    contents[f"{self.code.name}/{name}"] = held.read(name)
        return contents

    def code_changes(self) -> bytes:
        """The recorded difference from the commit: code.diff; empty if there is none."""
        try:
            return read_bytes(self.code_diff, most=MOST_TABLE_BYTES)
        except FileNotFoundError:
            return b""

    def digests(self) -> dict[str, str]:
        """sha256 of the files that describe a finished run, so that an edited folder is noticed."""
        paths = [self.config, self.provenance, self.code_diff, *self.tables]
        return {p.name: hashlib.sha256(read_bytes(p, most=MOST_TABLE_BYTES)).hexdigest() for p in paths if p.exists()}


def _settled(path: Path) -> Path:
    """The path without links, except for those within a sweep, which nobody typed: the guard refuses to follow them."""
    resolved, typed = path.resolve(), Path(os.path.abspath(path))
    if resolved != typed:
        for above in typed.parents:
            if (above / LEDGER).is_file():
                return above.resolve() / typed.relative_to(above)
    return resolved
