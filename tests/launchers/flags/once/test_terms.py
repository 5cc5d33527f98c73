"""What is typed with ``--once``: what has no effect with it is refused, before anything starts."""

import errno
import os
import time
from types import SimpleNamespace

import pytest

from manyheads.launchers.flags.once import ask, equal_runs
from manyheads.launchers.flags.once.equal_runs import EqualRuns, StartState, state_of_start
from manyheads.launchers.flags.once.terms import terms_of
from manyheads.runner.errors import ConfigurationError, WaitExpired
from manyheads.runner.run.json_types import ProvenanceJson
from manyheads.runner.run.run_folder import RunFolder


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-m", "seed=1,2", "hydra.launcher.dry_run=true"], "hydra.launcher.dry_run=true starts no job"),
        (["-m", "hydra.launcher.repeat_seed=same"], "hydra.launcher.repeat_seed=same repeats equal runs"),
        (["-m", "seed=1,2", "hydra.sweep.dir=/tmp/elsewhere"], "hydra.sweep.dir=/tmp/elsewhere is not below outputs"),
        (["--cfg", "job"], "--cfg: --once is for running"),
        (["--config-path", "outputs/a", "--config-name", "run"], "--config-path: --once is for running"),
        (["--wait", "soon"], "--wait soon is not allowed"),
        (["--among", "nowhere"], "--among nowhere is not a folder"),
        (["hydra.run.dir=/tmp/elsewhere"], "hydra.run.dir=/tmp/elsewhere is not below outputs"),
        (["--no-such-flag"], "there is no such flag"),
    ],
)
def test_what_has_no_effect_is_refused(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        terms_of(["--once", *words])
    assert says in str(refused.value)


def test_what_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terms = terms_of(["--once", "model=mlp", "--wait", "2m", "--among", ".", "--accept-failed", "seed=2"])
    assert terms.line.overrides == ("model=mlp", "seed=2")
    assert (terms.seconds, terms.accepts_failed, [str(root) for root in terms.roots]) == (120, True, ["outputs", "."])
    assert terms_of(["--once"]).seconds is None
    assert terms_of(["--once", "--wait", "0"]).seconds == 0


def test_data_without_a_fingerprint_is_refused():
    data = SimpleNamespace(fingerprint="none", sources=lambda: {"root": "/data"})
    with pytest.raises(ConfigurationError, match="data.fingerprint=none: --once compares the data"):
        state_of_start(SimpleNamespace(data=data))


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_disk_that_cannot_be_written_gives_a_sentence(number, tmp_path, monkeypatch):
    def refuse(path, flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ask, "no_link", refuse)
    refused = pytest.raises(ConfigurationError, match=f"can't be written: {os.strerror(number)}. --once keeps a lock")
    with refused, ask.turn(tmp_path, "ab" * 8, ask.Waiting(None)):
        pass


@pytest.mark.parametrize(
    ("status", "why"), [("queued", "is in a queue"), ("running", "is being run by another process")]
)
def test_what_is_waited_for_is_said(status, why, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(equal_runs, "_candidates", lambda roots, signature: [(RunFolder(tmp_path / "run"), status)])
    start = SimpleNamespace(provenance={"signature": "ab"}, equals=lambda folder: True)
    reason = EqualRuns.of([tmp_path], start).reason_to_wait
    assert reason is not None
    assert reason.endswith(f"run {why}")
    waiting = ask.Waiting(0.01)
    waiting.pause(reason)
    assert capsys.readouterr().out.endswith(f" {why}: waiting for it\n")
    time.sleep(0.01)
    with pytest.raises(WaitExpired, match=f" {why}, and nothing was started. --wait 0 s has passed. Ask again"):
        waiting.pause(reason)


def test_turns_are_of_processes(tmp_path):
    with ask.turn(tmp_path, "0" * 16, ask.Waiting(0.0)):
        if (child := os.fork()) == 0:
            code = 1
            try:
                with ask.turn(tmp_path, "1" * 16, ask.Waiting(0.0)):  # another key
                    code = 2
                with ask.turn(tmp_path, "0" * 16, ask.Waiting(0.0)):
                    code = 3
            except WaitExpired:
                code += 10
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12
    with ask.turn(tmp_path, "0" * 16, ask.Waiting(0.0)):
        pass


def changed(provenance: ProvenanceJson, path: str, value: object) -> StartState:
    """The start with another value at a dotted path."""
    *above, name = path.split(".")
    content: dict = {key: dict(part) if isinstance(part, dict) else part for key, part in provenance.items()}
    inner = content[above[0]] if above else content
    inner[name] = value
    return StartState(content, b"")


@pytest.fixture
def recorded(finished_run, monkeypatch) -> ProvenanceJson:
    monkeypatch.setattr(RunFolder, "code_changes", lambda _: b"")
    return equal_runs.read_json(finished_run.provenance)


def test_the_same_start(finished_run, recorded):
    assert StartState(recorded, b"").equals(finished_run)
    assert changed(recorded, "host", "another").equals(finished_run)
    assert changed(recorded, "environment", recorded["environment"] | {"CUDA_VISIBLE_DEVICES": "1"}).equals(
        finished_run
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("commit", None),
        ("commit", "0" * 40),
        ("own_code", {"/net.py": "0" * 64}),
        ("data", None),
        ("data.sizes", "0" * 64),
        ("data.times", "0" * 64),
        ("weights", {"files": 1, "bytes": 1, "sizes": "0", "contents": None, "times": "0"}),
        ("versions.torch", "9.9"),
        ("devices", ["NVIDIA H200"]),
        ("cpu.threads_per_rank", 7),
        ("cpu.model", "another"),
        ("ranks", 9),
        ("environment", {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}),
    ],
)
def test_another_start(finished_run, recorded, path, value):
    assert not changed(recorded, path, value).equals(finished_run)
