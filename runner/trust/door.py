"""The single entry point for other people's content: whatever gets past it is the user's own, or follows these rules.

| what comes in                                  | what it may be                                                    |
| ---------------------------------------------- | ----------------------------------------------------------------- |
| folder of configs (--config-path, -dir, ...)   | plain values: nothing of Hydra's own, no resolver (config_files)  |
| config, as composed and as resolved            | classes of the list, no steering keys (check, allowed_classes)    |
| run folder, sweep                              | no link out of it; its config like any other                      |
| jobs that a ledger names                       | folders inside the sweep                                          |
| commit and changes of a run (reproduce --code) | sealed with the run, or in the history of the user's code (own)   |
| tables, logs, results, checkpoints             | data: no link followed, bounded, shown printable (run/data_files) |

The user's own (own, run/seal) is what the user's key has sealed, what the user took over with ``manyheads trust``, and
what the user types. A config cannot claim it. Content is refused before any of it is imported, resolved or written.
docs/security.md describes the threats.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.arguments import CommandLine, Source, choices, parsed
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.schema import check
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_sealed_here
from manyheads.runner.trust.check import complaint, own_values, plain, refuse_untrusted
from manyheads.runner.trust.config_files import read_config_file, refuse_content, refuse_hydra_files
from manyheads.runner.trust.own import Trust, is_own_project, trusted_packages


def trust_for(
    line: CommandLine, packages: Iterable[str], saved: dict[str, Any] | None, files: Iterable[tuple[str, Any]] = ()
) -> Trust | None:
    """What the user trusts of the configs that ``line`` names; None if all of them are the project's own.

    packages: those that the user typed; saved: the primary config if it is a complete run's, for which no other file of
    its folder is read; files: keys with the files that the user typed for them.

    Raises ConfigurationError for files that reach Hydra's own section, and for untrusted packages.
    """
    foreign = [source for source in line.sources() if not _is_own(source.folder)]
    _refuse_ways_out(line, saved=saved is not None, foreign=bool(foreign))
    if not foreign:
        return None
    own = (*files, *typed_values(line.overrides), *recorded_values(line.primary))
    trust = Trust(trusted_packages(packages), own, foreign[0].folder)
    for source in foreign:
        try:
            _refuse_source(source, line, trust, saved)
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}{replace(trust, place=source.folder).how_to_own()}") from None
    return trust


def _refuse_source(source: Source, line: CommandLine, trust: Trust, saved: dict[str, Any] | None) -> None:
    if source.folder is None:
        _refuse_package(source, trust)
    elif saved is None or source.named_by != "--config-path":
        refuse_hydra_files(source.folder)
    elif not is_sealed_here(line.primary):
        refuse_content(line.primary, saved)


def _refuse_ways_out(line: CommandLine, *, saved: bool, foreign: bool) -> None:
    """Raises ConfigurationError for names that would bypass the check of the config folders."""
    if not saved and _leads_out(line.config_name):
        raise ConfigurationError(
            f"--config-name={line.config_name} is not allowed. Allowed: the name of a config. Name its folder with "
            "--config-path."
        )
    folders = [CONF, *(source.folder for source in line.sources() if source.folder)]
    for override in parsed(each for each in line.overrides if "/" in each or "@" in each):
        group = override.key_or_group
        if foreign and "hydra" in (override.package or "").split("."):
            raise ConfigurationError(
                f"{override.input_line} is not allowed with configs that you did not create on this machine: it "
                "puts one of them into Hydra's own section. Set single keys instead, as hydra.<key>=<value>."
            )
        names = [name for value in choices(override) for name in (value if isinstance(value, list) else [value])]
        is_group = "/" in group or any((folder / group).is_dir() for folder in folders)
        if is_group and any(isinstance(name, str) and _leads_out(name) for name in (group, *names)):
            raise ConfigurationError(
                f"{override.input_line} is not allowed. Allowed: names of options in the group's own folder. Name "
                "another folder with --config-dir."
            )


def recorded_values(path: Path) -> Iterator[tuple[str, Any]]:
    """The values that a file names if the user recorded it on this host; nothing otherwise."""
    if is_sealed_here(path):
        content = yaml.safe_load(path.read_bytes())
        with suppress(OmegaConfBaseException):  # then only its plain values are the user's
            content = OmegaConf.to_container(OmegaConf.create(content), resolve=True)
        yield from own_values(content)


def typed_values(overrides: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Each key with each value that the user typed for it; for a mapping, also everything in it."""
    for override in parsed(overrides):
        for choice in choices(override):
            yield from _inner(override.key_or_group, choice)


def _inner(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield key, value
    if key in ("checkpoint.load", "checkpoint.resume") and isinstance(value, str):
        yield key, str(Path(value).expanduser().absolute())  # as it is frozen
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from _inner(f"{key}.{name}", item)


def _is_own(folder: Path | None) -> bool:
    return folder is not None and (folder.resolve().is_relative_to(CONF) or is_own_project(folder))


def _leads_out(name: str) -> bool:
    """Whether a part of a name is hidden, the parent folder, or the root."""
    return any(not part or part.startswith(".") for part in name.split("/"))


def _refuse_package(source: Source, trust: Trust) -> None:
    """Raises ConfigurationError for an untrusted package, since looking for configs in a package imports it."""
    scheme, _, path = source.place.partition("://")
    package = path.strip("/").split("/")[0]
    if scheme != "pkg" or not trust.covers(package):
        raise ConfigurationError(complaint([(source.named_by, package or source.place)], replace(trust, place=None)))


def refuse_untrusted_run(folder: RunFolder, packages: Sequence[str] = ()) -> None:
    """Raises ConfigurationError for a run that the user neither recorded nor trusts. packages: those typed."""
    if not folder.config.exists():  # reported by the code that reads it
        return
    with Folder(folder.path) as held:
        held.refuse_links()
    folder.pin_config()
    if not folder.is_own():
        _refuse_config(folder, Trust(trusted_packages(packages), place=folder.path))


def refuse_untrusted_jobs(sweep: Path, folders: Sequence[str], packages: Sequence[str] = ()) -> None:
    """Raises ConfigurationError for untrusted jobs of a sweep; checks all of them before the first one starts.

    folders: those that the sweep's ledger names; packages: those typed.
    """
    with Folder(sweep) as held:
        held.refuse_links()
    for job in (RunFolder(sweep / folder) for folder in folders):
        if not job.path.is_relative_to(sweep.resolve()):
            raise ConfigurationError(
                f"the ledger of {sweep} names a job outside it: {job.path}. Resume that job on its own."
            )
        if (trust := trust_in_job(job, sweep, packages)) is not None:
            _refuse_config(job, trust)


def trust_in_job(job: RunFolder, sweep: Path, packages: Sequence[str] = ()) -> Trust | None:
    """What the user trusts of a job's config, frozen or else composed; None if it is the user's own."""
    if job.is_own() or (not job.config.exists() and is_sealed_here(job.composed)):
        return None
    return Trust(trusted_packages(packages), place=sweep)


def _refuse_config(folder: RunFolder, trust: Trust) -> None:
    """Check run.yaml, which ranks read unchanged; if it is missing, what Hydra composed, which will be frozen."""
    if folder.config.exists():
        config = folder.read_config()
        refuse_content(folder.config, config)
        refuse_untrusted(config, trust)
        check(OmegaConf.create(config))  # resuming a run does not check its values again
    elif folder.composed.exists():
        composed = read_config_file(folder.composed).content
        refuse_content(folder.composed, composed)
        if isinstance(composed, dict):  # before completing it, which imports the options' declarations
            refuse_untrusted(plain(OmegaConf.create(composed)), trust)  # freezing checks it again
