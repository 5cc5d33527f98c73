"""Making a record, making one of a sweep that is there, and checking one that somebody else made."""

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyheads.runner.api import sweep
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import invocation
from manyheads.runner.record import print_record
from manyheads.runner.record.evidence import Record, checked_signature, gather
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust.trust_store import Trust, trusted_packages

DIFFERS = 3
CLOSE = 1e-9


def record(overrides: Sequence[str], *, runs: int, target: str, clock: str, conf: str | None) -> int:
    """Run each recipe ``runs`` times, in turn, with other seeds; returns 0 where the first one reaches the target.

    ``conf``: a folder of more options.

    Raises ConfigurationError, and RunFailed where a run fails.
    """
    own = ("hydra.launcher.repeat=", "hydra.launcher.interleave=", "hydra.launcher.jobs=")
    if taken := [each for each in overrides if each.startswith(own)]:
        raise ConfigurationError(f"{taken[0]}: a record sets this itself. Set the number of runs with --runs.")
    more = [f"hydra.launcher.repeat={runs}", "hydra.launcher.interleave=true", "hydra.launcher.jobs=1"]
    return of_sweep(sweep([*overrides, *more], conf=conf).folder, target=target, clock=clock)


def of_sweep(folder: Path, *, target: str, clock: str) -> int:
    """Write record.json and record.html into a sweep's folder. Raises ConfigurationError."""
    if not Ledger(folder).exists():
        raise ConfigurationError(f"{folder} holds no sweep.")
    found = gather(folder, target=target, clock=clock)
    show(found)
    write_whole(folder / "record.json", json.dumps(found.to_json(), indent=2) + "\n")
    write_whole(folder / "record.html", print_record.as_page(found))
    for name in ("record.json", "record.html"):
        print(f"wrote {RunFolder(folder / name)}")  # named as a person would
    return 0 if print_record.reaches(found, found.contenders[0]) else DIFFERS


def again(path: Path, overrides: Sequence[str], *, runs: int) -> int:
    """Time somebody else's first recipe on this machine; returns 0 where it reaches the target here.

    Its config is looked at as any from elsewhere is: raises ConfigurationError for classes that are not trusted.
    """
    found, _ = read(path)
    with tempfile.TemporaryDirectory() as folder:
        write_whole(Path(folder) / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(found.contenders[0].config)))
        saved = ["--config-path", folder, "--config-name", "config"]
        target = f"{found.target.metric}={found.target.value!r}"
        return record([*saved, *overrides], runs=runs, target=target, clock=found.clock, conf=None)


def read(path: Path) -> tuple[Record, dict[str, Any]]:
    """A record with what its file says. Raises ConfigurationError."""
    try:
        content = read_json(path)
        return Record.from_json(content), content
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def check(path: Path) -> int:
    """Whether what a record claims follows from its runs; returns 0, or 3. Nothing that it names is run."""
    found, content = read(path)
    trust = Trust(trusted_packages())
    show(found)
    wrong = [*differences_of(found.to_json(), content)]
    wrong += [
        f"contenders.{number}.signature: it does not match the config"
        for number, each in enumerate(found.contenders)
        if checked_signature(each.config, trust) != each.signature
    ]
    for line in wrong:
        print(f"does not follow from the runs: {line}")
    if not wrong:
        print("all claims follow from the runs.")
        print(f"To time it here: {invocation.command('record', '--again', path)}")
    return DIFFERS if wrong else 0


def differences_of(expected: Any, claimed: Any, where: str = "") -> list[str]:
    """Sentences on claims that are not what is expected, key by key. ``where``: the key of both."""
    found: list[str] = []
    if isinstance(expected, dict) and isinstance(claimed, dict):
        for key in [*expected, *(key for key in claimed if key not in expected)]:
            found += differences_of(expected.get(key), claimed.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(expected, (list, tuple)) and isinstance(claimed, list) and len(expected) == len(claimed):
        for number, (one, other) in enumerate(zip(expected, claimed, strict=True)):
            found += differences_of(one, other, f"{where}.{number}")
    else:
        numbers = all(type(each) in (int, float) for each in (expected, claimed))
        if not (math.isclose(expected, claimed, rel_tol=CLOSE) if numbers else expected == claimed):
            found.append(f"{where}: the record claims {claimed!r}, correct is {expected!r}")
    return found


def show(found: Record) -> None:
    """Print the table and its sentences."""
    console = Console(highlight=False)
    table = Table(title=str(found.target), title_justify="left")
    for number, name in enumerate(print_record.COLUMNS):
        table.add_column(name, justify="left" if number in (0, 2) else "right", overflow="fold")
    for row in print_record.rows(found):
        table.add_row(*map(Text, row))
    console.print(table)
    for sentence in print_record.sentences(found):
        console.print(Text(sentence))
