"""Ctrl-C in the middle of a command: it says what is kept, and leaves nothing unfinished and no process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.commands.run_folders import write_run
from tests.commands.test_json import validator
from tests.conftest import Done

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.tail]
HELD = ("-m", "tests.commands.held")
COMMAND = ("-m", "manyheads.runner")
# Where a command is interrupted, what is typed, and of what it says is kept; {run}: a finished run, {out}: a folder.
CASES = {
    "report": (
        "manyheads.runner.report.write_report:draw",
        "{run} --to {out}",
        "writing the comparison: the files that are there are complete; run it again for the others",
    ),
    "export": ("shutil:copyfileobj", "{run} --format safetensors --out {out}/model.safetensors", "no file was written"),
    "convert": (
        "torch:save",
        "{run}/checkpoints/last.pt --to torch --out {out}/weights.pt",
        "no checkpoint was written",
    ),
}


def interrupted(
    *words: str, cwd: Path, held: Callable[[], bool], code: int = 130, **environment: str
) -> tuple[Done, list[psutil.Process]]:
    """How a command ends that is interrupted as by the terminal's Ctrl-C, and those of its processes that are left."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    below: list[psutil.Process] = []
    with process:
        try:
            deadline = time.monotonic() + 120
            while not held():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            below = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            left = psutil.wait_procs(below, timeout=20)[1]
            for each in left:
                each.kill()
    assert process.returncode == code, err
    return Done(process.returncode, out, err), left


def told(done: Done, command: str) -> str:
    """What is kept, by the error that --json prints."""
    reply = json.loads(done.out)
    assert [*validator(command).iter_errors(reply)] == []
    assert (reply["error"]["code"], reply["exit_code"]) == ("Interrupted", done.code)
    kept: str = reply["error"]["kept"]
    return kept


def files(folder: Path) -> Mapping[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", [*CASES])
def test_a_command_that_writes_files(finished_run, tmp_path, command):
    place, typed, kept = CASES[command]
    out, held = tmp_path / "out", tmp_path / "held"
    out.mkdir()
    before = files(finished_run.path)
    words = [*HELD, place, command, *typed.format(run=finished_run.path, out=out).split(), "--json"]
    done, left = interrupted(*words, cwd=tmp_path, held=held.exists, HELD=str(held))
    assert told(done, command).endswith(kept)
    assert left == []
    assert {path.name for path in files(out)} <= {"comparison.csv", "comparison.md", "comparison.html"}
    assert all(files(out).values())
    assert files(finished_run.path) == before


def test_its_last_line_says_it_to_people(finished_run, tmp_path):
    place, typed, kept = CASES["convert"]
    held = tmp_path / "held"
    words = [*HELD, place, "convert", *typed.format(run=finished_run.path, out=tmp_path).split()]
    done, _ = interrupted(*words, cwd=tmp_path, held=held.exists, HELD=str(held))
    assert done.err == f"\ninterrupted by SIGINT\nconverting: {kept}\n"
    assert done.out == ""


def test_report_that_watches(tmp_path):
    write_run(tmp_path / "sweep" / "0")
    write_run(tmp_path / "sweep" / "1", status=None)
    page = tmp_path / "out" / "comparison.html"
    with RunFolder(tmp_path / "sweep" / "1").locked():
        words = (*COMMAND, "report", "sweep/0", "sweep/1", "--watch", "--to", "out", "--json")
        done, left = interrupted(*words, cwd=tmp_path, held=page.exists)
    assert told(done, "report") == "report --watch: the runs continue; the files show them as they were"
    assert left == []


def test_resume_and_a_longer_run(finished_run, tmp_path):
    """Of a run that is trained on in another folder, and of that one, in its own."""
    longer = RunFolder(tmp_path / "longer")

    def more_than(step: int) -> Callable[[], bool]:
        return lambda: longer.steps.exists() and len(longer.steps.read_text().splitlines()) > step

    typed = ("trainer.max_steps=null", "trainer.epochs=100000", f"hydra.run.dir={longer.path}")
    again = f"run: resume it with: python -m runner resume {longer.path.name}"
    for words in ((str(finished_run.path), *typed), ("longer",)):
        begun = len(longer.steps.read_text().splitlines()) if longer.steps.exists() else 0
        done, left = interrupted(*COMMAND, "resume", *words, "--json", cwd=tmp_path, held=more_than(begun + 5))
        assert again in told(done, "resume")
        assert left == []
        assert longer.read_result()["status"] == "interrupted"
        assert longer.last_checkpoint.exists()


def test_clean(tmp_path):
    for name in "ab":
        write_run(tmp_path / "outputs" / name, status="failed")
    held = tmp_path / "held"
    place = "manyheads.runner.commands.clean:remove"
    words = (*HELD, place, "clean", "outputs", "--failed", "--yes", "--json")
    done, left = interrupted(*words, cwd=tmp_path, held=held.exists, HELD=str(held))
    assert told(done, "clean") == "removing: what was removed is gone; run clean again for the rest"
    assert left == []
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == {"a", "b"}


@pytest.mark.needs("gcc")
def test_install_horovod(tmp_path):
    """With a pip that takes long."""
    held, scratch = tmp_path / "held", tmp_path / "tmp"
    scratch.mkdir()
    (tmp_path / "pip").mkdir()
    wait = "import os, pathlib, time; pathlib.Path(os.environ['HELD']).touch(); time.sleep(600)\n"
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(wait)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    places = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(scratch), "HELD": str(held)}
    words = (*COMMAND, "install-horovod", "--rebuild", "--json")
    done, left = interrupted(*words, cwd=tmp_path, held=held.exists, **places)
    assert told(done, "install-horovod") == "building Horovod: run it again; a wheel that is complete is kept"
    assert left == []
    assert not [*tmp_path.rglob("*.whl")]
    assert not [*scratch.iterdir()]
