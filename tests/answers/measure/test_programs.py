"""Every module that a measurement's ranks run is a program, too: torchrun, mpirun and horovodrun start it as one."""

import json
import runpy
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from manyheads.runner.answers import measure
from manyheads.runner.loop import rank_main

ANSWERS = Path(measure.__file__).parents[1]
MODULES = [
    "manyheads.runner.answers." + ".".join(path.relative_to(ANSWERS).with_suffix("").parts)
    for path in sorted(ANSWERS.rglob("*.py"))
    if "\ndef main(path: str)" in path.read_text() or "\nmain = " in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_it_runs_as_a_program(module, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(rank_main, "main", lambda path, **_: started.append(path))
    code = {"rank": rank_main.__name__, "project": str(tmp_path), "folders": []}
    monkeypatch.setenv("MANYHEADS_JUDGED_CODE", json.dumps(code))  # for judge's at_revision
    monkeypatch.setattr(sys, "argv", [module, str(tmp_path)])
    with suppress(SystemExit):  # at_revision ends the process itself
        runpy.run_module(module, run_name="__main__")
    assert started == [str(tmp_path)]


def test_there_are_such_modules():
    assert len(MODULES) >= 4
