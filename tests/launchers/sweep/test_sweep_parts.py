"""What a sweep is made of, without starting a job."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations as combinations_of
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from manyheads.launchers.launcher_option import LauncherOption
from manyheads.launchers.sweep.console import Titles
from manyheads.launchers.sweep.devices import Room, jobs_at_once, on_cores, shares_of_cores
from manyheads.launchers.sweep.job_progress import JobProgress, run_job, split
from manyheads.launchers.sweep.plan import readable
from manyheads.launchers.sweep.run_jobs import end_as, run_jobs
from manyheads.launchers.sweep.sweep_options import RULES, Options, check_used, combinations, excluded_by
from manyheads.runner.config.lookup import read_option
from manyheads.runner.errors import ConfigurationError, Failure, Interrupted, Kind, RunFailed, Unavailable
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.respond import respond
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config

FAILURE = Failure(rank=1, exit_code=1, type="ValueError", message="no")
ENTRY = Entry(0, "0", ["seed=1"])


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (r"model=net.py\:Net", "model=net.py:Net"),
        (r"data.root=C\:/a\ b", r"data.root=C:/a\ b"),
        (r"a={b:c\:d}", r"a={b:c\:d}"),
        (r"a='b\:c'", r"a='b\:c'"),
    ],
)
def test_a_colon_is_shown_as_it_was_typed(chosen, shown):
    values = [override.value() for override in OverridesParser.create().parse_overrides([chosen, shown])]
    assert readable(chosen) == shown
    assert values[0] == values[1]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def raiser(error):
    def start(entry):
        raise error

    return start


class TestExclude:
    CONFIG = OmegaConf.create(
        {
            "hydra": {"runtime": {"choices": {"parallel": "dp", "precision": "apex"}}},
            "data": {"batch_size": 64},
            "optimizer": {"lr": 0.1, "nesterov": False, "eps": 1e-3, "betas": [0.9, 1e-3]},
        }
    )

    @pytest.mark.parametrize(
        ("exclude", "found"),
        [
            ([], None),
            ("", None),
            ("parallel=dp", {"parallel": "dp"}),
            ("parallel=dp,precision=apex", {"parallel": "dp", "precision": "apex"}),
            ("parallel=dp, precision=amp", None),
            (["precision=amp", "data.batch_size=64"], {"data.batch_size": 64}),
            (["data.batch_size=6"], None),
            ("optimizer.eps=1e-3", {"optimizer.eps": 0.001}),
            ("optimizer.betas=[0.9,1e-3],data.batch_size=64", {"optimizer.betas": [0.9, 0.001], "data.batch_size": 64}),
            ("optimizer.lr=0.1,optimizer.nesterov=false", {"optimizer.lr": 0.1, "optimizer.nesterov": False}),
            ([{"parallel": "dp", "data.batch_size": 64}], {"parallel": "dp", "data.batch_size": 64}),
        ],
    )
    def test_all_of_a_combination_must_hold(self, exclude, found):
        assert excluded_by(self.CONFIG, combinations(exclude)) == found

    @pytest.mark.parametrize("exclude", ["dp", "=dp", ["parallel=dp,apex"]])
    def test_what_is_no_combination(self, exclude):
        with pytest.raises(ConfigurationError, match=r"is not key=value. Write combinations in quotes"):
            combinations(exclude)

    @pytest.mark.parametrize("exclude", ["modle=x", ["parallel=dp", "parallel=dpp"]])
    def test_one_that_no_job_has(self, exclude):
        with pytest.raises(ConfigurationError, match="no job of this sweep has that"):
            check_used(combinations(exclude), [self.CONFIG])

    def test_one_that_another_one_includes_is_used(self):
        check_used(combinations(["parallel=dp", "parallel=dp,precision=apex"]), [self.CONFIG])

    def test_a_key_that_only_other_jobs_have(self):
        assert excluded_by(self.CONFIG, combinations("precision.level=O2,parallel=dp")) is None


class TestOptions:
    def test_the_defaults_are_allowed(self):
        Options().check()

    @pytest.mark.parametrize("key", sorted(RULES))
    def test_each_names_its_key(self, key):
        with pytest.raises(ConfigurationError, match=rf"hydra\.launcher\.{key}=nonsense is not allowed. Allowed: "):
            Options(**{key: "nonsense"}).check()

    def test_from_a_ledger_of_another_version(self):
        assert Options.of({"jobs": 3, "colour": "red"}) == Options(jobs=3)


class TestSettle:
    @pytest.mark.parametrize(
        ("error", "state", "reason", "out_of_memory"),
        [
            (Unavailable("no GPU"), "skipped", "no GPU", False),
            (ConfigurationError("wrong"), "failed", "wrong", False),
            (RunFailed(FAILURE), "failed", "rank 1 failed first (exit code 1): ValueError: no", False),
            (RunFailed(Failure(Kind.OUT_OF_MEMORY, message="no")), "failed", None, True),
            (RunFailed(Failure.of(RuntimeError("DefaultCPUAllocator: can't allocate memory"))), "failed", None, True),
            (RunFailed(Failure.of(RuntimeError("CUDA error: out of memory"))), "failed", None, True),
            (ZeroDivisionError(), "failed", "ZeroDivisionError", False),
            (Interrupted(signal.SIGTERM), "interrupted", "SIGTERM", False),
            (KeyboardInterrupt(), "interrupted", "SIGINT", False),
            (SystemExit(3), "failed", "the job called sys.exit(3)", False),
            (SystemExit("bye"), "failed", "the job called sys.exit('bye')", False),
            (SystemExit(0), "completed", None, False),
            (SystemExit(None), "completed", None, False),
        ],
        ids=repr,
    )
    def test_whatever_a_job_raises(self, error, state, reason, out_of_memory):
        done = run_job(ENTRY, raiser(error))
        assert (done.state, done.out_of_memory) == (state, out_of_memory)
        assert reason is None or done.reason == reason

    @pytest.mark.parametrize(("value", "objective"), [(2, 2.0), (0.5, 0.5), (None, None), ("text", None)])
    def test_its_objective(self, value, objective):
        done = run_job(ENTRY, lambda entry: value)
        assert (done.state, done.objective) == ("completed", objective)


class TestSplit:
    @pytest.mark.parametrize("overrides", [("parallel=single",), ("parallel=ddp",)], ids=" ".join)
    def test_down_to_one_sample_with_the_global_batch_kept(self, tmp_path, overrides):
        folder = RunFolder(tmp_path / "0")
        folder.write_config(config(*overrides, "data.batch_size=8"))
        entry, seen = ENTRY, []
        while (half := split(entry, tmp_path)) is not None:
            entry = half
            found = RunFolder(tmp_path / entry.folder).read_config()
            seen.append((entry.folder, entry.split, found["trainer"]["grad_accumulation"]))
            assert found["data"]["batch_size"] == 8
        expected = [("0_split2", 2, 2), ("0_split4", 4, 4), ("0_split8", 8, 8)]
        assert seen == expected[: len(seen)]
        assert len(seen) == (3 if overrides == ("parallel=single",) else 2)


class TestRunning:
    @pytest.fixture
    def ledger(self, tmp_path):
        ledger = Ledger(tmp_path)
        ledger.create({})
        return ledger

    ENTRIES = [Entry(job, str(job), [f"seed={job}"]) for job in range(4)]

    @pytest.mark.parametrize(
        ("on_failure", "states"),
        [
            ("continue", ["completed", "failed", "completed", "completed"]),
            ("stop", ["completed", "failed", "pending", "pending"]),
        ],
    )
    @pytest.mark.parametrize("slots", [1, 2])
    def test_after_a_failure(self, ledger, on_failure, states, slots):

        def start(entry):
            if entry.job == 1:
                raise RunFailed(FAILURE)
            if slots == 2 and entry.job == 0:  # runs already when the other one fails
                until(lambda: ledger.entries()[1].state == "failed")

        ledger.write(*self.ENTRIES)
        run_jobs(self.ENTRIES, ledger, Options(on_failure=on_failure), start, slots=slots)
        assert [entry.state for entry in ledger.entries()] == states

    def test_an_interruption_ends_it(self, ledger):
        ledger.write(*self.ENTRIES)
        with pytest.raises(Interrupted) as stop:
            run_jobs(self.ENTRIES, ledger, Options(), raiser(Interrupted(signal.SIGTERM)))
        assert stop.value.signum == signal.SIGTERM
        assert [e.state for e in ledger.entries()] == ["interrupted", "pending", "pending", "pending"]

    def test_a_slot_that_is_killed_fails_its_job_only(self, ledger):
        def start(entry):
            if entry.job == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        ledger.write(*self.ENTRIES)
        run_jobs(self.ENTRIES, ledger, Options(), start, slots=2)
        entries = ledger.entries()
        assert [e.state for e in entries] == ["completed", "failed", "completed", "completed"]
        assert entries[1].reason == "the job's process ended with exit code -9"

    def test_output_of_a_slot_goes_to_the_jobs_file(self, ledger, capfd):
        ledger.write(*self.ENTRIES)
        run_jobs(self.ENTRIES, ledger, Options(), lambda entry: os.write(1, f"I am {entry.job}\n".encode()), slots=2)
        assert "I am" not in capfd.readouterr().out
        assert [(ledger.sweep / str(job) / "console.log").read_text() for job in range(4)] == [
            f"I am {job}\n" for job in range(4)
        ]

    @pytest.mark.parametrize("shared", [False, True])
    def test_jobs_have_gpus_of_their_own(self, ledger, monkeypatch, tmp_path, shared):
        """No test machine is sure to have two GPUs: which ones a job is given is ours."""
        monkeypatch.setattr(hardware, "gpu_ids", lambda: ["0", "1"])
        monkeypatch.setattr(LauncherOption, "gpus_here", lambda launcher, count: 1)
        on_gpus = {**config(), "trainer": {**config()["trainer"], "device": "cuda"}}
        for entry in self.ENTRIES:
            RunFolder(tmp_path / entry.folder).write_config(on_gpus)
        spans = tmp_path / "spans"

        def start(entry):
            began = time.monotonic()
            (tmp_path / f"began-{entry.job}").touch()
            if shared:  # three slots, two GPUs
                until(lambda: len([*tmp_path.glob("began-*")]) >= 3)
            else:
                time.sleep(0.2)
            with open(spans, "a") as file:
                file.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} {began} {time.monotonic()}\n")

        ledger.write(*self.ENTRIES)
        run_jobs(self.ENTRIES, ledger, Options(share_devices=shared), start, slots=3)
        used = [(gpu, float(a), float(b)) for gpu, a, b in map(str.split, spans.read_text().splitlines())]
        assert sorted(gpu for gpu, *_ in used) == ["0", "0", "1", "1"]
        overlaps = [
            (one, other)
            for one, other in combinations_of(used, 2)
            if one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
        ]
        assert bool(overlaps) == shared

    def test_progress_counts_jobs(self, ledger):
        ledger.write(*self.ENTRIES)
        progress = JobProgress(self.ENTRIES, ledger, Options(), apart=False)
        progress.started(self.ENTRIES[0])
        progress.stop(Interrupted(signal.SIGINT))
        assert (progress.waiting(), progress.next(), progress.interrupted.signum) == ([], None, signal.SIGINT)


class TestTheEnd:
    REFUSED = replace(ENTRY, state="failed")
    COMPLETED, FAILED, SKIPPED = (replace(ENTRY, state=s, signature="a") for s in ("completed", "failed", "skipped"))

    @pytest.mark.parametrize(
        ("entries", "code"),
        [
            ([], 0),
            ([COMPLETED, COMPLETED], 0),
            ([COMPLETED, SKIPPED], 0),
            ([SKIPPED], 0),
            ([REFUSED], 2),
            ([REFUSED, REFUSED, SKIPPED], 2),
            ([FAILED], 1),
            ([REFUSED, FAILED], 1),
            ([REFUSED, COMPLETED], 1),
        ],
    )
    def test_a_sweep_ends_as_its_jobs_did(self, tmp_path, entries, code):
        ledger = Ledger(tmp_path)
        ledger.create({}, *(replace(entry, job=job) for job, entry in enumerate(entries)))
        assert respond("", lambda: end_as(ledger)) == code

    def test_a_job_that_was_put_right_and_then_failed_was_not_refused(self, tmp_path):
        ledger = Ledger(tmp_path)
        ledger.create({}, self.REFUSED)
        (tmp_path / "0").mkdir()
        (tmp_path / "0" / "result.json").write_text("{}")
        assert respond("", lambda: end_as(ledger)) == 1


class TestRoom:
    def test_gpus_are_given_to_one_job_at_a_time(self):
        room = Room(["0", "1", "2", "3"])
        assert room.take(2) == ["0", "1"]
        assert room.take(3) is None
        assert room.take(1) == ["2"]
        room.give_back(["0", "1"])
        assert room.take(3) == ["0", "1", "3"]
        assert room.take(0) == []

    def test_a_job_that_wants_more_than_there_are_gets_all(self):
        assert Room(["0", "1"]).take(8) == ["0", "1"]

    def test_shared_they_go_round(self):
        room = Room(["0", "1"], shared=True)
        assert [room.take(1) for _ in range(4)] == [["0"], ["1"], ["0"], ["1"]]

    @pytest.mark.parametrize(
        ("overrides", "count"),
        [
            ({"parallel": {"name": "single"}}, 1),
            ({"parallel": {"name": "ddp"}}, 3),
            ({"parallel": {"name": "dp", "device_ids": None, "output_device": None}}, 4),
            ({"parallel": {"name": "dp", "device_ids": [0, 1], "output_device": None}}, 2),
            ({"parallel": {"name": "ddp"}, "trainer": {"device": "cpu"}}, 0),
        ],
    )
    def test_how_many_a_job_uses(self, monkeypatch, overrides, count):
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["GPU"] * 4)
        ranks = 1 if overrides["parallel"]["name"] in ("single", "dp") else 3
        known = RunConfig.of(config())
        parallel = {**read_option("parallel", overrides["parallel"]["name"]), **overrides["parallel"]}
        trainer = {**known.written["trainer"], "device": "cuda", **overrides.get("trainer", {})}
        launcher = {**known.written["launcher"], "nproc_per_node": ranks}
        found = RunConfig.of({**known.written, "trainer": trainer, "launcher": launcher, "parallel": parallel})
        assert found.gpus_here == count


class TestCores:
    @pytest.mark.parametrize("slots", [1, 2, 3, 50])
    def test_every_slot_has_some(self, slots):
        shares = shares_of_cores(slots)
        assert len(shares) == slots
        assert all(shares)
        if slots <= hardware.cpu_cores():
            assert len({core for share in shares for core in share}) == sum(map(len, shares))

    def test_only_meanwhile(self):
        before = hardware.cpu_cores()
        with on_cores(shares_of_cores(1)[0][:1]):
            assert hardware.cpu_cores() == 1
        assert hardware.cpu_cores() == before

    def test_jobs_at_once(self, monkeypatch):
        monkeypatch.setattr(hardware, "cpu_cores", lambda: 8)
        monkeypatch.setattr(hardware, "gpu_names", list)
        single, ddp = (OmegaConf.create(config(f"parallel={name}")) for name in ("single", "ddp"))
        assert jobs_at_once("auto", [single] * 20) == 8
        assert jobs_at_once("auto", [single, ddp, ddp, ddp, ddp, ddp]) == 4
        assert jobs_at_once("auto", []) == 1
        assert jobs_at_once(3, [single] * 20) == 3
        assert jobs_at_once(3, [single]) == 1
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["GPU"] * 2)
        assert jobs_at_once("auto", [ddp] * 20) == 2

    def test_jobs_for_which_an_engine_finds_room_are_not_limited_by_this_machine(self, monkeypatch):
        from manyheads.launchers.ray import RayOption

        monkeypatch.setattr(hardware, "cpu_cores", lambda: 1)
        monkeypatch.setattr(RayOption, "unavailable", lambda option: None)
        ray, spawn = (OmegaConf.create(config("parallel=ddp", f"launcher={name}")) for name in ("ray", "spawn"))
        assert jobs_at_once("auto", [ray] * 20) == 20
        assert jobs_at_once(3, [ray] * 20) == 3
        assert jobs_at_once("auto", [ray, spawn]) == 1


def test_titles_say_what_differs():
    entries = [Entry(0, "0", ["seed=1", "a=1"]), Entry(1, "1", ["seed=1", "a=2"]), Entry(1, "b", ["seed=1", "a=2"], 2)]
    titles = Titles(entries)
    assert [titles.of(entry) for entry in entries] == ["a=1", "a=2", "a=2 (repeat 2)"]
    assert Titles(entries[:1]).of(entries[0]) == "seed=1 a=1"
    assert Titles([]).of(Entry(3, "3", [])) == "job 3"


def test_a_failure_travels_between_processes():
    failure, stop = pickle.loads(pickle.dumps(RunFailed(FAILURE))), pickle.loads(pickle.dumps(Interrupted(15)))
    assert (failure.failure, str(failure)) == (FAILURE, str(RunFailed(FAILURE)))
    assert (stop.signum, stop.exit_code) == (15, 143)


def test_no_torch_in_a_sweep():
    modules = "manyheads.launchers.sweep.batch, manyheads.launchers.sweep.run_jobs"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False).returncode == 0
