"""Publishing finished runs, such as those of a node without a network."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from manyheads.launchers.publishing.empty_folder import settled, tell_unread
from manyheads.launchers.publishing.publish_state import one_publisher
from manyheads.launchers.publishing.publisher import Publisher
from manyheads.launchers.publishing.publisher_main import tracker_of
from manyheads.runner.config.command_line import typed_values
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.config.schema import check_entry
from manyheads.runner.errors import ConfigurationError, Unavailable, complain
from manyheads.runner.logger.logger_option import LoggerOption
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import declared
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder


def publish(paths: Sequence[str], *, to: Sequence[str], overrides: Sequence[str]) -> int:
    """Publish runs, and the jobs of sweeps; returns the exit code. ``to``: trackers, else those of each run's config.

    ``overrides``: keys of the trackers, as train takes them. Raises ConfigurationError before anything is sent.
    """
    typed = dict(map(_typed, overrides))
    planned, trackers = [], list[LoggerOption]()
    for folder in _runs(paths):
        with Folder(folder.path) as held:
            held.refuse_links()
        found = _trackers_of(folder, to, typed)
        planned += [(folder, name, tracker_of(name, option.section)) for name, option in found.items()]
        trackers += found.values()
    tell_unread(trackers)
    failed = False
    for folder, name, tracker in planned:
        with one_publisher(folder, name), settled():
            publisher = Publisher(folder, name, tracker)
            try:
                publisher.finish()
            except ConfigurationError:
                raise
            except Exception:  # whatever a tracker's client raises
                complain(f"{folder}: {publisher.state.error}")
                failed = True
            else:
                url = publisher.state.url
                print(f"{folder}: published to {name}{f': {url}' if url else ''}", flush=True)
    if failed:
        print(f"To send what is missing, run: {_again(paths, to, overrides)}", file=sys.stderr)
    return int(failed)


def _again(paths: Sequence[str], to: Sequence[str], overrides: Sequence[str]) -> str:
    return invocation.command("publish", *paths, *(word for name in to for word in ("--to", name)), *overrides)


def _runs(paths: Sequence[str]) -> Iterator[RunFolder]:
    """Of a sweep the jobs that were started."""
    for path in paths:
        ledger = Ledger(path)
        if not ledger.exists():
            yield RunFolder(path)
            continue
        jobs = [RunFolder(ledger.sweep / entry.folder) for entry in ledger.entries()]
        yield from (job for job in jobs if job.path.is_relative_to(ledger.sweep) and job.provenance.exists())


def _trackers_of(folder: RunFolder, to: Sequence[str], typed: dict[tuple[str, str], Any]) -> dict[str, LoggerOption]:
    """The trackers to publish to, by name: what the run's config says if it is one's own, and what was typed."""
    config = folder.read_config()
    own = {
        name: entry
        for name, entry in (config.get("logger") or {}).items()
        if folder.is_own() and declared("logger", entry).publishes
    }
    if not (names := to or list(own)):
        raise ConfigurationError(f"{folder} names no tracker. Choose one: --to {{{','.join(_trackers())}}}.")
    known = list(dict.fromkeys([*own, *_trackers()]))
    found = {}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"--to {name}: there is no such tracker. Allowed: {', '.join(known)}.")
        entry = dict(own.get(name) or read_option("logger", name)[name])
        entry |= {key: value for (tracker, key), value in typed.items() if tracker == name}
        check_entry("logger", name, entry)
        found[name] = declared("logger", entry, name=name)
        if reason := found[name].unavailable():
            raise Unavailable(f"--to {name}: {reason}.")
    if unused := [f"logger.{name}.{key}" for name, key in typed if name not in found]:
        raise ConfigurationError(f"{unused[0]}: nothing is published to this tracker. Allowed: {', '.join(found)}.")
    return found


def _trackers() -> list[str]:
    """The project's own."""
    known = {name: entry for option in options("logger") for name, entry in read_option("logger", option).items()}
    return [name for name, entry in known.items() if declared("logger", entry).publishes]


def _typed(override: str) -> tuple[tuple[str, str], Any]:
    key, value = next(iter(typed_values([override]).items()), ("", None))
    group, name, own = [*key.split(".", 2), "", ""][:3]
    if group != "logger" or not own:
        raise ConfigurationError(
            f"{override} is not allowed. Allowed: the keys of a tracker, such as logger.mlflow.experiment=x."
        )
    return (name, own), value
