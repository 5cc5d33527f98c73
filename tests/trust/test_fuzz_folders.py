"""Run and sweep folders with damaged or hostile files, under every command that takes one.

Each attempt mutates a copy of a real run or sweep in a few places, and gives it to one command, in a fork of a process
that has imported torch. Whatever the folder holds: no Python traceback instead of an error, no code of the folder's
choosing, nothing written outside. By default two minutes; MANYHEADS_FUZZ_SECONDS and MANYHEADS_FUZZ_SEED change that.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import FAST, RUN, execute
from tests.trust.mutations import mutate

pytestmark = [pytest.mark.tail, pytest.mark.processes, pytest.mark.timeout(0)]
SECONDS = float(os.environ.get("MANYHEADS_FUZZ_SECONDS", "120"))
SEED = int(os.environ.get("MANYHEADS_FUZZ_SEED", "1"))
PATIENCE = 60.0  # seconds for a command that trains nothing
CANARY = "import pathlib\npathlib.Path(__file__).with_name('mark').touch()\nclass Net: pass\n"
ONE_RUN = ("show", "report", "resume", "evaluate", "reproduce", "trust", "publish", "clean", "list", "export", "diff")
TRAIN = ("resume", "evaluate", "reproduce")  # from a config that may ask for a day of it


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a sweep of two jobs, with checkpoints, sealed by their author's key."""
    home = tmp_path_factory.mktemp("author")
    with pytest.MonkeyPatch.context() as patch:
        _be(patch, home)
        common = (*FAST, "logger=tensorboard")
        for words in (("hydra.run.dir=run",), ("-m", "seed=1,2", "hydra.sweep.dir=sweep")):
            done = execute(sys.executable, str(RUN), *words, *common, cwd=home)
            assert done.code == 0, done.err
    return home


def _be(patch: pytest.MonkeyPatch, home: Path) -> None:
    for name, kind in {"STATE": "state", "CONFIG": "config", "CACHE": "cache"}.items():
        patch.setenv(f"XDG_{name}_HOME", str(home / kind))
    patch.setenv("WANDB_MODE", "offline")


def test_folders_with_anything_in_them(recorded, tmp_path, monkeypatch, capfd):
    chance, end, attempts, found = random.Random(SEED), time.monotonic() + SECONDS, 0, list[str]()
    while time.monotonic() < end:
        attempts += 1
        new = _attempt(recorded, tmp_path / str(attempts), monkeypatch, chance)
        with capfd.disabled():
            print(*new, sep="\n\n", end="\n" * len(new), flush=True)
        found += new
    assert attempts > 0
    assert not found, f"{len(found)} of {attempts} attempts"


def _attempt(recorded: Path, here: Path, patch: pytest.MonkeyPatch, chance: random.Random) -> list[str]:
    """One command over one changed folder; returns what was wrong."""
    work, victim = here / "work", here / "victim"
    for folder in (work, victim):
        folder.mkdir(parents=True)
    (victim / "secret").write_text("SECRET=1\n")
    (work / "canary.py").write_text(CANARY)
    kind = chance.choice(("run", "run", "sweep"))
    shutil.copytree(recorded / kind, work / kind, symlinks=True)
    if is_own := chance.random() < 0.4:
        shutil.copytree(recorded / "state", here / "state")
    _be(patch, here)
    done = [mutate(work / kind, victim, chance) for _ in range(chance.choice((1, 1, 2, 4)))]
    before = _content(victim)
    command = _command(chance, kind)
    trains = command[0] in TRAIN
    wrong = []
    try:
        arguments = (sys.executable, "-m", "manyheads.runner", *command)
        ended = execute(*arguments, cwd=work, timeout=10 if trains else PATIENCE)
        if "Traceback (most recent call last)" in ended.err or ended.code not in (0, 1, 2, 3, 130, 143):
            wrong.append(f"exit code {ended.code}: {ended.err[-1500:]}")
    except subprocess.TimeoutExpired:
        if not trains:
            wrong.append(f"no end within {PATIENCE:g} seconds")
    if (work / "mark").exists() or any(victim.rglob("mark")):
        wrong.append("code of the folder's choosing ran")
    if _content(victim) != before:
        wrong.append(f"written outside: {sorted(_content(victim).items() ^ before.items())}")
    if odd := {each.name for each in work.iterdir()} - {kind, "canary.py", "outputs", "__pycache__"}:
        wrong.append(f"left in the working directory: {sorted(odd)}")
    shutil.rmtree(here)
    return [f"{' '.join(command)}, {'own' if is_own else 'foreign'}: {'; '.join(done)}\n{each}" for each in wrong]


def _command(chance: random.Random, kind: str) -> list[str]:
    name = chance.choice(ONE_RUN)
    target = kind if kind == "run" else chance.choice(("sweep", "sweep/0"))
    more = {
        "list": [],
        "clean": ["--yes", *chance.choice(([], ["--checkpoints"], ["--failed"]))],
        "publish": ["--to", "wandb"],
        "export": ["--format", "safetensors"],
        "diff": [target],
    }.get(name, [])
    return [name, target, *more]


def _content(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }
