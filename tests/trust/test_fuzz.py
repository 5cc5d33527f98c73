"""Configs and ledgers that nobody would think of: whatever becomes of them, nothing happens outside the run's folder.

Python's own audit events are the witness (https://docs.python.org/3/library/audit_events.html): files that are opened
for writing, names that change, processes, connections, modules. The ranks are left out: what reaches them is a config
that names harmless classes only, which is looked at here instead.
"""

import copy
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.launchers import launch as launching
from manyheads.launchers import resume_run as resuming_run
from manyheads.launchers.sweep import run_jobs as resuming
from manyheads.runner.option.rules import KeyKind
from manyheads.runner.trust.allowed_keys import own_kinds
from manyheads.runner.trust.check_trust import untrusted
from manyheads.runner.trust.trust_store import Trust

pytestmark = pytest.mark.ci

BOUNDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXTS = st.sampled_from(
    [
        *("os.system", "my_package.Net", "torch.hub.load", "torch.nn.MSELoss", "torch.optim.SGD", "builtins.exec"),
        *("torchvision.datasets.Cityscapes", "manyheads.runner.run.seal.take_over", "???", "", "_target_", "hydra"),
        *("${oc.env:HOME}", "${seed}", "${model}", "${.}", "${..x}", "${oc.${x}:y}", "${", "}", "$(touch mark)"),
        *("../../mark", "/etc/passwd", "~/.bashrc", "file:///tmp", "pkg://my_package"),
        *("\x1b[2J", "\0", "a\nb", "\ud800"),
        *("null", "true", "1e999", "NaN", "-", "--x", "[", "{", "*a", "&a", "<<", "@package", "!!python"),
    ]
) | st.text(max_size=5)  # fmt: skip
LEAVES = TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([10**50, -1, 2**64, 0])
KEYS = TEXTS | st.sampled_from(["_target_", "name", "defaults", "hydra", "trust", "callbacks", "x"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEVER = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "os.fork", "pty.spawn")
NAMES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_watched: list[tuple[Path, list[str]]] = []  # by an audit hook, which stays for good once there is one


def _hook(event: str, arguments: tuple) -> None:
    if not _watched:
        return
    root, found = _watched[-1]
    if event in NEVER:
        found.append(f"{event}{arguments!r}")
    elif event == "import" and arguments[0] in ("my_package", "hydra_would_import"):
        found.append(f"import {arguments[0]}")
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
        _look(event, arguments[0], root, found)
    elif event in NAMES and isinstance(arguments[-1], int) and arguments[-1] < 0:  # else relative to an opened folder
        for name in arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]:
            _look(event, name, root, found)


def _look(event: str, name: object, root: Path, found: list[str]) -> None:
    """Names that are relative are so to a folder that was opened before, without following a link."""
    path = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
    allowed = [root / each for each in ("theirs", "state", "out")]
    if os.path.isabs(path) and not any(Path(path).is_relative_to(each) for each in allowed) and path != os.devnull:
        found.append(f"{event} {path}")


@contextmanager
def watched(root: Path) -> Iterator[list[str]]:
    """What happens meanwhile that may not."""
    found: list[str] = []
    _watched.append((root, found))
    try:
        yield found
    finally:
        _watched.pop()


@pytest.fixture(scope="module", autouse=True)
def _audit() -> None:
    importlib.import_module("matplotlib.font_manager")  # which makes a cache of its own, once
    sys.addaudithook(_hook)


@pytest.fixture
def reached(monkeypatch):
    """Run configs that would have gone to ranks."""
    found: list[dict[str, Any]] = []

    def prepare(folder, **_):
        found.append(folder.read_config())

    for module in (launching, resuming, resuming_run):
        monkeypatch.setattr(module, "prepare", prepare)
        monkeypatch.setattr(module, "launch", lambda *_, **__: {"objective": None})
    monkeypatch.setattr("manyheads.runner.provenance.provenance.record", lambda *_, **__: None)  # it asks git
    monkeypatch.setattr(resuming, "conclude", lambda *_, **__: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return found


def assert_nothing_happened(done, here: Path, events: list[str], reached: list[dict[str, Any]]) -> None:
    assert events == []
    assert done.code in (0, 1, 2)
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err + done.out
    for config in reached:
        assert untrusted(config, Trust()) == []
    assert not {"mark", "imported", "called"} & set(os.listdir(here))


def changed(config: dict[str, Any], changes: list[tuple[str, str, Any]]) -> dict[str, Any]:
    """The config with values put somewhere into it."""
    config = copy.deepcopy(config)
    for section, key, value in changes:
        if section == "":
            config[key] = value
        elif isinstance(config.get(section), dict):
            config[section][key] = value
    return config


SECTIONS = ["", "model", "data", "optimizer", "scheduler", "precision", "launcher", "parallel", "trainer", "loss",
            "checkpoint"]  # fmt: skip
_HOSTS = [key for key, kind in own_kinds("launcher").items() if kind is KeyKind.PLACE]
PLACES = st.sampled_from(
    sorted([*_HOSTS, "root", "options", "timeline", "download", "pretrained", "_target_", "_option_", "name", "lr"])
)
CHANGES = st.lists(st.tuples(st.sampled_from(SECTIONS), PLACES | KEYS, VALUES), min_size=1, max_size=3)


def as_yaml(content: Any) -> str:
    """Of texts that no encoding takes, something near."""
    return yaml.safe_dump(content, allow_unicode=True).encode(errors="replace").decode()


@settings(BOUNDED, max_examples=25)
@given(changes=CHANGES)
def test_a_run_config(resume_here, here, config, reached, changes):
    shutil.rmtree(here / "theirs", ignore_errors=True)
    (here / "theirs").mkdir()
    (here / "theirs" / "run.yaml").write_text(as_yaml(changed(config, changes)))
    reached.clear()
    with watched(here) as events:
        done = resume_here("theirs")
    assert_nothing_happened(done, here, events, reached)


SNIPPETS = ["hydra: {run: {dir: mark}}\n", "defaults: [{override hydra/launcher: basic}]\n", "# @package hydra\n",
            "&a ", "*a", "!!python/object/apply:os.system ['touch mark']", "<<: *a\n", "? ", ": ", "\n", "\t", "---\n",
            "${oc.env:HOME}", "_target_: os.system\n", "\x00", "\ufeff", "\u2028", "'", '"',
            "[", "{", "%YAML 1.1\n"]  # fmt: skip


@settings(BOUNDED, max_examples=10)
@given(
    parts=st.lists(st.tuples(st.integers(0, 4000), st.sampled_from(SNIPPETS)), min_size=1, max_size=4),
    way=st.sampled_from(["--config-path", "--config-dir"]),
)
def test_the_text_of_a_config(run_here, here, config, reached, parts, way):
    text = as_yaml(config)
    for position, snippet in parts:
        position %= len(text) + 1
        text = text[:position] + snippet + text[position:]
    for name in ("theirs", "out"):
        shutil.rmtree(here / name, ignore_errors=True)
    (here / "theirs" / "model").mkdir(parents=True)
    (here / "theirs" / ("run.yaml" if way == "--config-path" else "model/x.yaml")).write_text(text)
    chosen = ("--config-name", "run") if way == "--config-path" else ("model=x",)
    reached.clear()
    with watched(here) as events:
        done = run_here(way, str(here / "theirs"), *chosen, f"hydra.run.dir={here}/out")
    assert_nothing_happened(done, here, events, reached)


ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "job": st.integers(0, 2) | VALUES,
        "folder": st.sampled_from(["0", "1", "../mine", "/mine", ".", "a/../0"]) | VALUES,
        "overrides": st.lists(TEXTS, max_size=2) | VALUES,
        "state": st.sampled_from(["pending", "failed", "completed", "running"]) | VALUES,
        "repeat": VALUES,
        "signature": VALUES,
        "reason": VALUES,
        "split": VALUES,
        "objective": VALUES,
        "time": VALUES,
        "more": VALUES,
    },
)
OPTIONS = st.dictionaries(st.sampled_from(["jobs", "on_oom", "timeout", "repeat", "exclude", "x"]), VALUES, max_size=2)


@settings(BOUNDED, max_examples=25)
@given(
    options=OPTIONS | VALUES,
    entries=st.lists(ENTRY, max_size=3),
    changes=CHANGES,
    command=st.sampled_from(["resume", "report"]),
)
def test_a_ledger(command_here, here, config, reached, options, entries, changes, command):
    for name in ("theirs", "mine"):
        shutil.rmtree(here / name, ignore_errors=True)
    (here / "mine").mkdir()
    for folder, content in (("theirs/0", config), ("theirs/1", changed(config, changes)), ("mine", config)):
        (here / folder).mkdir(parents=True, exist_ok=True)
        (here / folder / "run.yaml").write_text(as_yaml(content))
    base = {"job": 0, "folder": "0", "overrides": []}
    lines = [{"options": options}, *({**base, **entry} for entry in entries)]
    (here / "theirs" / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reached.clear()
    with watched(here) as events:
        done = command_here(command, "theirs")
    assert_nothing_happened(done, here, events, reached)
