"""Runs that started equally: same signature, code, data, weights to start from, versions, devices and threads."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.code_state import code_at_start
from manyheads.runner.provenance.fingerprint import forget_files
from manyheads.runner.provenance.node_records import unless_submitted
from manyheads.runner.provenance.provenance import describe
from manyheads.runner.records.run_result import refuse_edited
from manyheads.runner.records.surroundings import differences
from manyheads.runner.records.tried.index import IndexedRun, indexed
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.json_types import Fingerprint, ProvenanceJson, right
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import digest_of

ACTIVE = {"running": "is being run by another process", "queued": "is in a queue"}  # by state


@dataclass(frozen=True)
class StartState:
    """What a run would record of its start. ``diff``: the uncommitted changes of this project's code."""

    provenance: ProvenanceJson
    diff: bytes

    @cached_property
    def key(self) -> str:
        """A digest that equal starts share; those with other machines, versions or threads may share it, too."""
        names = ("signature", "commit", "own_code")
        return digest_of([self.provenance.get(name) for name in names])

    def equals(self, folder: RunFolder) -> bool:
        """Whether the run in a folder recorded the same start; what it did not record, or is unknown now, differs."""
        try:
            recorded = right(read_json(folder.provenance), ProvenanceJson)
            changes = folder.code_changes()
        except (OSError, ConfigurationError):
            return False
        now = unless_submitted(self.provenance, recorded)
        is_known = (recorded.get("commit") is None) == (now["commit"] is None)
        same_files = (recorded.get("own_code") or {}).keys() == now["own_code"].keys()
        if not (is_known and same_files and _same(recorded.get("data"), now["data"])):
            return False
        if not _same(recorded.get("weights"), now["weights"]):
            return False
        differing = differences(recorded, now, chosen=[], diffs=(changes, self.diff))
        return not any(difference.matters for difference in differing)


def state_of_start(run: RunConfig) -> StartState:
    """What this run would record, here and now. Raises ConfigurationError if it would record nothing of its data."""
    if run.data.fingerprint == "none" and run.data.sources():
        message = ": --once compares the data with that of earlier runs. Set it to sizes or contents."
        raise ConfigurationError.at("data.fingerprint", "none", message)
    forget_files()  # what was read before a wait
    code_at_start.cache_clear()
    state = StartState(describe(run), code_at_start()[1])
    if state.provenance["data"] is None:
        warn("data.root names no files, so --once does not notice a change of what the data is read from.")
    return state


def _same(recorded: Fingerprint | None, now: Fingerprint | None) -> bool:
    """Whether two fingerprints are certain to be of the same files: by contents, else by sizes and times."""
    if recorded is None or now is None:
        return recorded is now
    if recorded["contents"] and now["contents"]:
        return recorded["contents"] == now["contents"]
    times = recorded.get("times")
    return recorded["sizes"] == now["sizes"] and times is not None and times == now.get("times")


@dataclass(frozen=True)
class EqualRuns:
    """The equal runs below some folders, by their states, the newest first.

    ``active``: those that are being run, or are in a queue, and which of both, in words.
    """

    completed: list[RunFolder] = field(default_factory=list)
    active: list[tuple[RunFolder, str]] = field(default_factory=list)
    interrupted: list[RunFolder] = field(default_factory=list)
    failed: list[RunFolder] = field(default_factory=list)

    @classmethod
    def of(cls, roots: Sequence[Path], start: StartState) -> "EqualRuns":
        """Find them; warns of those that were edited after they had ended, which do not count."""
        runs = cls()
        for folder, status in _candidates(roots, str(start.provenance["signature"])):
            if not start.equals(folder):
                continue
            if status in ACTIVE:
                runs.active.append((folder, ACTIVE[status]))
            elif status == "failed":
                runs.failed.append(folder)
            elif status == "completed" and (result := folder.completed()) is not None:
                try:
                    refuse_edited(folder, result)
                    runs.completed.append(folder)
                except ConfigurationError as error:
                    warn(f"{error} It does not count for --once.")
            elif status in ("completed", "interrupted") and folder.is_own():
                runs.interrupted.append(folder)
        return runs

    @property
    def reason_to_wait(self) -> str | None:
        """Which run is waited for, and what it does, in words; None if none is active."""
        return next((f"{folder} {doing}" for folder, doing in self.active), None)

    def answer(self, accepts_failed: bool) -> RunFolder | None:
        """The run that is the answer; None if there is none. ``accepts_failed``: a failed run is one, too."""
        return next(iter([*self.completed, *(self.failed if accepts_failed else ())]), None)


def _candidates(roots: Sequence[Path], signature: str) -> Iterator[tuple[RunFolder, str]]:
    """The runs with this signature and their states, the newest first."""
    rows: dict[Path, IndexedRun] = {}
    for root in roots:
        with suppress(ConfigurationError):  # there is no such folder yet
            rows |= dict(indexed(root).runs(lambda row: bool(row[-2] == signature)))
    newest = sorted(rows.items(), key=lambda item: item[1].started, reverse=True)
    return ((RunFolder(path), row.status) for path, row in newest)
