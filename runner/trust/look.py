"""Code that somebody else's folder could run: read once, shown, and trusted exactly as shown."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from manyheads.runner.config.project import own_project
from manyheads.runner.config.saved import parse_config
from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.option.tree import OPTION, TARGET
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import MOST_TABLE_BYTES, parse_json
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.check_trust import RESOLVER, leads_to_hydra, plain, resolvers, untrusted
from manyheads.runner.trust.trust_store import Trust

ROWS = 20  # of a terminal, that a screen takes
WHERE, WHAT = 100, 300  # characters of a line


class Danger(IntEnum):
    """What a risk could do, from harmless to any code: the order in which they are shown."""

    NOTHING = 0
    KEY = 1  # a path, a host, a command, ...
    FOLDER = 2  # in which code is looked up
    RECORDED = 3  # code that reproduce would run
    RESOLVER = 4  # which reads environment variables
    CODE = 5
    ANYTHING = 6


class Risk(NamedTuple):
    """One line: where it was found, and what it is."""

    danger: Danger
    where: str
    what: str


@dataclass(frozen=True)
class Look:
    """A folder that was looked at, and what was found in it. ``project``: the one that has these configs, if any.

    ``covers``: digests of everything in it that may run (``seal.digests``); None: everything that is ever in it.
    """

    folder: Path
    risks: tuple[Risk, ...]
    covers: dict[str, str] | None
    project: Path | None = None

    def trust(self) -> None:
        """Trust what was looked at. Raises OSError."""
        seal.trust(self.folder, self.covers, project=self.project)


def screen(looks: Sequence[Look]) -> list[str]:
    """What was found, as lines for one screen, the most dangerous last; nothing in them can forge another line."""
    where: dict[tuple[Danger, str], list[str]] = {}
    for look in looks:
        for risk in look.risks:
            where.setdefault((risk.danger, risk.what), []).append(risk.where)
    ordered = sorted(where.items(), key=lambda pair: pair[0][0])
    width = shutil.get_terminal_size().columns
    lines, rows = list[str](), 0
    for (_, what), places in reversed(ordered):
        others = f" and {len(places) - 1} others" if places[1:] else ""
        line = f"{_escaped(places[0], WHERE, keeps_end=True)}{others}: {_escaped(what, WHAT)}"
        rows += -(-len(line) // width)
        if lines and rows > ROWS:
            left = len(ordered) - len(lines)
            lines.append(f"{left} lines, none of them more dangerous than the others, are not shown")
            break
        lines.append(line)
    return lines[::-1]


def _escaped(text: str, most: int, *, keeps_end: bool = False) -> str:
    """A text as a part of one line, with line breaks and all that steers a terminal escaped."""
    kept = text[-most:] if keeps_end else text[:most]
    kept = "".join(character if character.isprintable() else repr(character)[1:-1] for character in kept)
    if len(kept) <= most and len(text) <= most:
        return kept
    return f"...{kept[-most:]}" if keeps_end else f"{kept[:most]}... ({len(text):,} characters)"


def digest(looks: Sequence[Look]) -> str:
    """The digest of all that was shown, which the user names to trust exactly that."""
    return seal.digest_of([[str(look.folder), look.risks, look.covers] for look in looks])


def look(path: Path) -> list[Look]:
    """Look at a project, a run, or a sweep with its jobs. Raises ConfigurationError for what cannot be read."""
    path = path.resolve()
    ledger = Ledger(path)
    jobs = [RunFolder(path / entry.folder) for entry in ledger.entries()] if ledger.exists() else [RunFolder(path)]
    jobs = [job for job in jobs if job.holds_run() and job.path.is_relative_to(path)]
    if not jobs and not ledger.exists():
        return [_look_at_configs(path)]
    with Folder(path) as folder:
        folder.refuse_links()
        sweep = [_look_at_sweep(ledger)] if ledger.exists() else []
        return [*sweep, *(_look_at_run(job, folder.child(job.path.relative_to(path))) for job in jobs)]


def _look_at_run(run: RunFolder, folder: Folder) -> Look:
    with folder:
        parts: dict[str, bytes | str] = {}
        risks: list[Risk] = []
        for name, what in ((run.config.name, str(run)), (RunFolder.COMPOSED, f"{run}, as composed")):
            with suppress(FileNotFoundError):
                content = parts[name] = folder.read(name)
                risks += _in_config(what, _mapping(parse_config(content, run.path / name)), run.path / name)
        for name, content in run.copied_code().items():
            parts[name] = content
            may = f"reproduce would use {run.path / name}, which may differ from what it was copied from"
            risks.append(Risk(Danger.RECORDED, str(run), may))
        provenance = _provenance(folder)
        parts |= {name: str(provenance.get(name)) for name in ("id", "commit", "directory")}
        if (key := provenance.get("id")) is not None:
            risks.append(Risk(Danger.KEY, str(run), f"publish would write into your trackers' run {key}"))
        if (directory := provenance.get("directory")) is not None:
            may = f"packages that it names would also be looked up in {directory}"
            risks.append(Risk(Danger.FOLDER, str(run), may))
        parts[run.code_diff.name] = b""
        with suppress(FileNotFoundError):
            diff = parts[run.code_diff.name] = folder.read(run.code_diff.name, most=MOST_TABLE_BYTES)
            files = [line[6:].decode(errors="replace") for line in diff.splitlines() if line.startswith(b"+++ b/")]
            may = f"reproduce --code would apply {run.code_diff}, which changes {', '.join(files)}"
            risks.append(Risk(Danger.RECORDED, str(run), may))
        if (commit := provenance.get("commit")) is not None:
            risks.append(Risk(Danger.RECORDED, str(run), f"reproduce --code would run commit {commit}"))
        return Look(run.path, tuple(risks), seal.digests(parts))


def _in_config(where: str, content: dict[str, Any], path: Path) -> Iterator[Risk]:
    """What a complete config names that is not this project's own code, or plain. Raises ConfigurationError."""
    kept = {key: value for key, value in content.items() if not leads_to_hydra(key)}
    risks = [Risk(Danger.ANYTHING, where, f"changes Hydra's own settings: {key}") for key in {*content} - {*kept}]
    risks += _named(where, content, _resolved(kept, path))
    yield from risks or [Risk(Danger.NOTHING, where, "names only this project's own code")]


def _named(where: str, content: dict[str, Any], resolved: dict[str, Any]) -> Iterator[Risk]:
    """The calls of resolvers in a config, and its values that need trust."""
    yield from (Risk(Danger.RESOLVER, where, f"asks for {text}") for text in resolvers(content))
    for key, value in untrusted(resolved, Trust()):
        is_code = key.rpartition(".")[2] in (TARGET, OPTION)
        yield Risk(Danger.CODE if is_code else Danger.KEY, where, f"{key}={value}")


def _look_at_sweep(ledger: Ledger) -> Look:
    """A sweep's own part: how it is planned again, which a search always is, and others if their jobs are missing."""
    sealed = ledger.sealed_part()
    arguments = ledger.arguments(sealed)
    may = f"resume would run: train {' '.join(arguments)}"
    risks = [Risk(Danger.ANYTHING, str(ledger.sweep), may)] if arguments else []
    return Look(ledger.sweep, tuple(risks), seal.digests(sealed))


def _look_at_configs(project: Path) -> Look:
    path = own_project(project)
    with Folder(path) as folder:
        risks = list(_of_configs(folder))
    may = "every config in this folder may run any code and change Hydra's own settings"
    return Look(path, (*risks, Risk(Danger.ANYTHING, str(path), may)), None, None if path == project else project)


def _of_configs(folder: Folder) -> Iterator[Risk]:
    for name, _ in folder.walk():
        if name.suffix == ".yaml":
            where = str(folder.path / name)
            content = _mapping(parse_config(folder.read(name), folder.path / name))
            yield from _named(where, content, content)
            yield from (Risk(Danger.CODE, where, "hydra=...") for key in content if key == "hydra")


def _provenance(folder: Folder) -> dict[str, Any]:
    try:
        return _mapping(parse_json(folder.read("provenance.json").decode(errors="replace")))
    except FileNotFoundError:  # it was planned, and never started
        return {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{printable(folder.path / 'provenance.json')} cannot be read: {error}.") from None


def _resolved(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """A config with its references to other keys resolved; no resolver is called. Raises ConfigurationError."""
    try:
        return plain(OmegaConf.create(_without_resolvers(values)))
    except Exception as error:  # OmegaConf raises anything for what somebody wrote
        raise ConfigurationError(f"{printable(path)} cannot be read: {printable(error)}.") from None


def _without_resolvers(value: Any) -> Any:
    """The value with the calls of resolvers as plain texts."""
    if isinstance(value, dict):
        return {_without_resolvers(key): _without_resolvers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_resolvers(item) for item in value]
    return value.replace("${", "$ {") if isinstance(value, str) and RESOLVER.search(value) else value


def _mapping(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}
