"""Code that somebody else's folder could run: read once, shown, and trusted exactly as shown."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, parse_json
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.check_trust import own_values, plain, untrusted
from manyheads.runner.trust.plain_content import parse_config
from manyheads.runner.trust.trust_store import Trust, own_project


@dataclass(frozen=True)
class Look:
    """A folder that was looked at. ``lines``: what to show of it.

    ``covers``: digests of everything in it that may run (``seal.digests``); None: everything that is ever in it.
    """

    folder: Path
    lines: tuple[str, ...]
    covers: dict[str, str] | None

    def trust(self) -> None:
        """Trust what was looked at. Raises OSError."""
        seal.trust(self.folder, self.covers)


def digest(looks: Sequence[Look]) -> str:
    """The digest of all that was shown, which the user names to trust exactly that."""
    return seal.digest_of([[str(each.folder), each.lines, each.covers] for each in looks])


def look(path: Path) -> list[Look]:
    """Look at a project, a run, or a sweep with its jobs. Raises ConfigurationError for what cannot be read."""
    path = path.resolve()
    ledger = Ledger(path)
    jobs = [RunFolder(path / entry.folder) for entry in ledger.entries()] if ledger.exists() else [RunFolder(path)]
    jobs = [job for job in jobs if job.holds_run() and job.path.is_relative_to(path)]
    if not jobs and not ledger.exists():
        return [_look_at_configs(own_project(path))]
    with Folder(path) as folder:
        folder.refuse_links()
        sweep = [_look_at_sweep(ledger)] if ledger.exists() else []
        return [*sweep, *(_look_at_run(job, folder.child(job.path.relative_to(path))) for job in jobs)]


def _look_at_run(run: RunFolder, folder: Folder) -> Look:
    with folder:
        parts: dict[str, bytes | str] = {}
        found = []
        for name, what in ((run.config.name, str(run)), (RunFolder.COMPOSED, f"{run}, as composed")):
            with suppress(FileNotFoundError):
                content = parts[name] = folder.read(name)
                found.append(f"{what}: {_listed(untrusted(_resolved(content, run.path / name), Trust()))}")
        for name, content in run.copied_code().items():
            parts[name] = content
            found.append(f"  reproduce would use {run.path / name}, which may differ from what it was copied from")
        provenance = _provenance(folder)
        parts |= {name: str(provenance.get(name)) for name in ("id", "commit", "directory")}
        if (directory := provenance.get("directory")) is not None:
            found.append(f"  packages that it names would also be looked up in {directory}")
        parts[run.code_diff.name] = b""
        with suppress(FileNotFoundError):
            diff = parts[run.code_diff.name] = folder.read(run.code_diff.name, most=MOST_TABLE_BYTES)
            files = [line[6:].decode(errors="replace") for line in diff.splitlines() if line.startswith(b"+++ b/")]
            found.append(f"  reproduce --code would apply {run.code_diff}, which changes {', '.join(files)}")
        if (commit := provenance.get("commit")) is not None:
            found.append(f"  reproduce --code would run commit {commit}")
        return Look(run.path, tuple(map(printable, found)), seal.digests(parts))


def _look_at_sweep(ledger: Ledger) -> Look:
    """A sweep's own part: how it is planned again, which a search always is, and others if their jobs are missing."""
    sealed = ledger.sealed_part()
    arguments = ledger.arguments(sealed)
    found = [f"{ledger.sweep}: resume would run: train {' '.join(arguments)}"] if arguments else []
    return Look(ledger.sweep, tuple(map(printable, found)), seal.digests(sealed))


def _look_at_configs(path: Path) -> Look:
    with Folder(path) as folder:
        found = list(_of_configs(folder))
    found.append(f"every config in {path} may run any code and change Hydra's own settings")
    return Look(path, tuple(map(printable, found)), None)


def _of_configs(folder: Folder) -> Iterator[str]:
    for name, _ in folder.walk():
        if name.suffix == ".yaml":
            content = _mapping(parse_config(folder.read(name), folder.path / name))
            found = list(own_values(content)) + [(key, "...") for key in content if key == "hydra"]
            if found:
                yield f"{folder.path / name}: {_listed(found)}"


def _provenance(folder: Folder) -> dict[str, Any]:
    try:
        return _mapping(parse_json(folder.read("provenance.json").decode(errors="replace")))
    except FileNotFoundError:  # it was planned, and never started
        return {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{printable(folder.path / 'provenance.json')} cannot be read: {error}.") from None


def _resolved(content: bytes, path: Path) -> dict[str, Any]:
    """A run config with its interpolations resolved, as far as that is possible. Raises ConfigurationError."""
    values = _mapping(parse_config(content, path))
    try:
        return plain(OmegaConf.create(values))
    except Exception as error:  # OmegaConf raises anything for what somebody wrote
        raise ConfigurationError(f"{printable(path)} cannot be read: {printable(error)}.") from None


def _mapping(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _listed(found: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{key}={value}" for key, value in found) or "names only this project's own code"
