"""The one door for other people's content: all that passes it is the user's own, or follows these rules.

| what comes in                                  | what it may be                                                    |
| ---------------------------------------------- | ----------------------------------------------------------------- |
| folder of configs (--config-path, -dir, ...)   | only the user's own: one that is trusted (own)                    |
| folder of configs of an installed package      | options with names of their own (config/installed)                |
| one complete run config (run.yaml)             | plain values: nothing of Hydra's own, no resolver (content)       |
| config, as composed and as resolved            | classes of the list, keys by what they are declared (allowed_...) |
| run folder, sweep                              | no link out of it; its config like any other                      |
| jobs that a ledger names                       | folders inside the sweep                                          |
| commit, changes and code of a run, a search    | sealed with it (run/seal)                                         |
| tables, logs, results, checkpoints             | data: no link followed, bounded, shown printable (run/folder)     |

The user's own is what the user recorded, trusted with ``manyheads trust`` (run/seal), or types. A config cannot claim
it. Content is refused before any of it is imported, resolved or written. docs/security.md describes the threats.

Content is admitted once, by the module that reads it: a command line by ``config/origin.py``, a config that was
composed by the ``door`` that is handed to ``config/freeze.py``, a recorded run or config by
``provenance/past_config.py``, what a record names by ``records/load_run.py``. What these return is admitted; nothing
behind them asks again.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.command_line import CommandLine, Source, choices, parsed
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.own_folders import packages
from manyheads.runner.config.saved import parse_config
from manyheads.runner.config.section_rules import refuse_secrets
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.tree import OPTION, Section
from manyheads.runner.run import seal
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.frozen_config import run_config, without_format
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.allowed_keys import may_declare
from manyheads.runner.trust.check_trust import complaint, refuse_content, refuse_untrusted, shown
from manyheads.runner.trust.trust_store import Trust, trusted_packages


def admit_line(
    line: CommandLine,
    packages: Iterable[str],
    saved: tuple[Section, bool] | None,
    files: Iterable[tuple[str, Any]] = (),
) -> Trust | None:
    """The user's trust in the configs that ``line`` names; None if all of them are the user's own.

    packages: those that the user typed; saved: the primary config if it is a complete run's, for which no other file of
    its folder is read, and whether it is the user's own; files: keys with the files that the user typed for them.

    Raises ConfigurationError for other people's folders of configs, untrusted packages, and keys and passwords.
    """
    _refuse_ways_out(line, saved=saved is not None)
    refuse_secrets(typed_values(line.overrides))
    foreign = [source for source in line.sources() if not _is_own(source, saved)]
    if not foreign:
        return None
    trust = trusting(line.overrides, packages, files, folder=foreign[0].folder)
    for source in foreign:
        _refuse_source(source, line, trust, saved)
    return trust


def door(trust: Trust | None) -> Callable[[Section | DictConfig], None]:
    """What raises ConfigurationError for a config that the user does not trust; None: for none, all are the user's."""
    return partial(refuse_untrusted, trust=trust)


def trusting(
    overrides: Iterable[str],
    packages: Iterable[str],
    files: Iterable[tuple[str, Any]] = (),
    *,
    folder: Path | None = None,
) -> Trust:
    """The user's trust in somebody else's config from ``folder``: in what was typed, and in the user's packages."""
    return Trust(trusted_packages(packages), (*files, *typed_values(overrides)), folder)


def _is_own(source: Source, saved: tuple[Section, bool] | None) -> bool:
    if source.folder is None:
        return False
    if source.folder in (package.folder for package in packages()):
        return True
    is_recorded = saved is not None and saved[1] and source.named_by == "--config-path"
    return is_recorded or source.folder.resolve().is_relative_to(CONF) or seal.is_own_place(source.folder)


def _refuse_source(source: Source, line: CommandLine, trust: Trust, saved: tuple[Section, bool] | None) -> None:
    if source.folder is None:
        _refuse_package(source, trust)
    elif not source.folder.is_dir():
        raise ConfigurationError.at(source.named_by, source.place, f": {shown(source.folder)} is not a folder.")
    elif saved is None or source.named_by != "--config-path":
        raise ConfigurationError.at(
            source.named_by,
            source.place,
            f": configs that are composed can run any code, and these were not created "
            "by you on this machine. Allowed: a single complete config, such as a run's run.yaml. Look at them; if you "
            f"trust them, run once: {invocation.command('trust', source.folder)}",
        )
    else:
        try:
            refuse_content(line.primary, saved[0])
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}{trust.how_to_own()}") from None


def _refuse_ways_out(line: CommandLine, *, saved: bool) -> None:
    """Raises ConfigurationError for names by which Hydra would read files outside the folders that are checked."""
    if not saved and _leads_out(line.config_name):
        raise ConfigurationError(
            f"--config-name={line.config_name} is not allowed. Allowed: the name of a config. Name its folder with "
            "--config-path.",
            key="--config-name",
            value=line.config_name,
        )
    folders = [CONF, *(source.folder for source in line.sources() if source.folder)]
    for override in parsed(word for word in line.overrides if "/" in word or "@" in word):
        group = override.key_or_group
        names = [name for value in choices(override) for name in (value if isinstance(value, list) else [value])]
        is_group = "/" in group or any((folder / group).is_dir() for folder in folders)
        if is_group and any(isinstance(name, str) and _leads_out(name) for name in (group, *names)):
            raise ConfigurationError(
                f"{override.input_line} is not allowed. Allowed: names of options in the group's own folder. Name "
                "another folder with --config-dir.",
                key=group,
                value=override.value(),
            )


def typed_values(overrides: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Each key with each value that the user typed for it; for a mapping, also everything in it."""
    for override in parsed(overrides):
        for choice in choices(override):
            yield from _inner(override.key_or_group, choice)


def _inner(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield key, value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from _inner(f"{key}.{name}", item)


def _leads_out(name: str) -> bool:
    """Whether a part of a name is hidden, the parent folder, or the root."""
    return any(not part or part.startswith(".") for part in name.split("/"))


def _refuse_package(source: Source, trust: Trust) -> None:
    """Raises ConfigurationError for an untrusted package, since looking for configs in a package imports it."""
    scheme, _, path = source.place.partition("://")
    package = path.strip("/").split("/")[0]
    if scheme != "pkg" or not trust.covers(package):
        raise ConfigurationError(complaint([(source.named_by, package or source.place)], trust))


def admit_run(folder: RunFolder, packages: Iterable[str] = (), overrides: Iterable[str] = ()) -> Section:
    """The run config in a folder. Raises ConfigurationError for a run that the user neither recorded nor trusts.

    packages: those typed; overrides: others for its keys and groups, which are checked when they are composed with it.

    From then on, no run.yaml but the checked one is read, nor a new one if there was none.
    """
    folder.pin_config()
    with Folder(folder.path) as held:
        held.refuse_links()
    folder.refuse_other_format()
    if folder.is_own():
        return folder.read_config()
    replaced = tuple(key for key, _ in typed_values(overrides))
    trust = Trust(trusted_packages(packages), folder=folder.path, replaced=replaced)
    return _checked(folder.config_content(), folder.config, trust)


def admit_declarations(config: Section, folder: Path | None) -> None:
    """Raises ConfigurationError for classes by which somebody else's options declare themselves, if not trusted."""
    trust = Trust(trusted_packages(), folder=folder)
    named = [(group, section.get(OPTION)) for group in GROUPS if isinstance(section := config.get(group), dict)]
    if refused := [(f"{group}.{OPTION}", name) for group, name in named if not may_declare(group, name, trust)]:
        raise ConfigurationError(complaint(refused, trust))


def admit_jobs(sweep: Path, folders: Iterable[str], packages: Iterable[str] = ()) -> None:
    """Raises ConfigurationError for untrusted jobs of a sweep; checks all of them before the first one starts.

    folders: those that the sweep's ledger names; packages: those typed.
    """
    with Folder(sweep) as held:
        held.refuse_links()
    for job in (RunFolder(sweep / folder) for folder in folders):
        if not job.path.is_relative_to(sweep):
            raise ConfigurationError(
                f"the ledger of {shown(sweep)} names a job outside it: {shown(job.path)}. Resume that job on its own."
            )
        if job.config.exists() or job.composed.exists():  # else it fails when its turn comes
            admit_job(job, sweep, packages)


def admit_job(job: RunFolder, sweep: Path, packages: Iterable[str] = ()) -> tuple[dict[str, Any], Trust | None]:
    """A job's config, frozen or else composed, read once, with what the user trusts of it; None for the user's own.

    Raises ConfigurationError if it is missing, and for somebody else's that is not trusted.
    """
    for path in (job.config, job.composed):
        try:
            content = read_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if seal.is_own(job.path, {str(path.relative_to(job.path)): content}):
            return _parsed(content, path), None
        trust = Trust(trusted_packages(packages), folder=sweep)
        return _checked(content, path, trust), trust
    raise ConfigurationError(f"{job} holds no run: it has neither {job.config.name} nor .hydra/config.yaml.")


def _parsed(content: bytes, path: Path) -> dict[str, Any]:
    """A frozen config as ranks read it, or a composed one as Hydra wrote it."""
    if path.name == "run.yaml":
        return run_config(content, path)
    values = parse_config(content, path)
    return without_format(values) if isinstance(values, dict) else {}


def _checked(content: bytes, path: Path, trust: Trust) -> dict[str, Any]:
    """Somebody else's run config, which ranks read unchanged, or which will be frozen. Raises ConfigurationError."""
    refuse_content(path, parse_config(content, path))  # refuses by size before it parses
    config = _parsed(content, path)
    refuse_untrusted(config if path.name == "run.yaml" else OmegaConf.create(config), trust)
    if path.name == "run.yaml":  # resuming a run does not check its values again
        from manyheads.runner.config.schema import check  # printing a config does not need it

        check(OmegaConf.create(config))
    return config
