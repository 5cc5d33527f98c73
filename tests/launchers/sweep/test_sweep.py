"""Whole sweeps by the real command."""

import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, ROOT, Done, execute
from tests.launchers.conftest import descendants
from tests.tail import tail

pytestmark = pytest.mark.processes
HERE = Path(__file__).parent.parent  # where faulty.py is
PLAIN = tuple(each for each in FAST if "width" not in each)
ONE_THREAD = ("launcher.threads_per_rank=1",)  # the cores are shared by several tests
LONGER = (  # 36 updates, and a checkpoint in the middle of an epoch
    *("trainer.epochs=3", "trainer.limit_train=12", "trainer.log_every=5", "checkpoint.every=10"),
    *("data.batch_size=48", "model.width=4"),
)


def sweep(path: Path, *overrides: str) -> Done:
    command = (str(ROOT / "run.py"), "-m", f"hydra.sweep.dir={path}", *overrides)
    return execute(sys.executable, *command, cwd=HERE, timeout=240)


def resume(path: Path) -> Done:
    return execute(sys.executable, "-m", "manyheads.runner", "resume", str(path), cwd=HERE, timeout=240)


def states(path: Path) -> list[str]:
    return [entry.state for entry in Ledger(path).entries()]


def results(path: Path) -> list[tuple[str, str]]:
    """Of each job: its state, and its weights' digest."""
    entries = Ledger(path).entries()
    found = [RunFolder(path / entry.folder).read_result() or {} for entry in entries]
    return [(entry.state, result.get("weights_sha256")) for entry, result in zip(entries, found, strict=True)]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A sweep with jobs that complete, some that fail, and some that can't run on this machine; reached by a link."""
    linked = tmp_path_factory.mktemp("mixed") / "outputs"
    linked.symlink_to(tmp_path_factory.mktemp("scratch"))
    path = linked / "sweep"
    faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.step=2", "+model.how=nothing,raise,sys.exit")
    return path, sweep(path, "parallel=single,ddp", "precision=fp32,tf32", *faulty, *PLAIN)


class TestAMixedSweep:
    def test_a_failed_job_ends_nothing(self, done):
        path, command = done
        expected = ["completed", "failed", "failed", *["skipped"] * 3]
        assert states(path) == expected * 2
        assert command.code == 1

    def test_each_says_why(self, done):
        path, command = done
        entries = Ledger(path).entries()
        assert "rank 0 failed first (exit code 1): ArithmeticError: made to fail" in entries[1].reason
        assert "exit code 7" in entries[2].reason
        assert "precision=tf32" in entries[3].reason
        assert "12 jobs: 2 completed, 4 failed, 6 skipped" in command.err
        assert command.err.count("ArithmeticError: made to fail") >= 2

    def test_all_were_frozen_before_the_first_began(self, done):
        path, _ = done
        first = RunFolder(path / "0").provenance.stat().st_mtime_ns
        for job in (0, 1, 2, 6, 7, 8):
            assert RunFolder(path / str(job)).config.stat().st_mtime_ns < first

    def test_what_was_skipped_was_not_run_as_something_else(self, done):
        path, _ = done
        assert sorted(p.name for p in (path / "3").iterdir()) == [".hydra", "seal.json"]

    def test_folders_are_in_the_sweep_though_a_link_leads_there(self, done):
        path, _ = done
        assert [entry.folder for entry in Ledger(path).entries()] == [str(job) for job in range(12)]
        assert "outside the sweep" not in (path / "comparison.md").read_text()

    def test_the_ledger_tells_every_state(self, done):
        path, _ = done
        lines = [yaml.safe_load(line) for line in Ledger(path).path.read_text().splitlines()[1:]]
        assert [line["state"] for line in lines if line["job"] == 0] == ["pending", "running", "completed"]
        assert all(line["signature"] is not None for line in lines if line["job"] == 0)
        assert lines[0]["overrides"][:2] == ["parallel=single", "precision=fp32"]
        assert len({line["signature"] for line in lines if line["signature"]}) == 6

    def test_no_job_trains_in_the_sweeps_process(self, done):
        """Else it would leave its torch, its seeds and its memory to the next one."""
        path, _ = done
        logs = [RunFolder(path / job).read_result() for job in ("0", "6")]
        assert [log["launcher"] for log in logs] == ["inline", "spawn"]
        assert logs[0]["weights_sha256"] is not None


THREE = ("parallel=single,ddp,dp", *ONE_THREAD, *LONGER)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of the three jobs to which nothing has happened; to be read only."""
    path = tmp_path_factory.mktemp("whole") / "sweep"
    assert sweep(path, *THREE).code == 0
    return path


class TestGoingOn:
    """Killed or stopped, and resumed: the same results as undisturbed."""

    @pytest.mark.parametrize(
        ("signum", "code", "jobs"),
        [
            (signal.SIGINT, 130, 1),
            *(tail(signal.SIGKILL, -9, 2), tail(signal.SIGKILL, -9, 1), tail(signal.SIGINT, 130, 2)),
            *(tail(signal.SIGTERM, 143, jobs) for jobs in (1, 2)),
        ],
    )
    def test_ends_with_the_same_results(self, tmp_path, parent, undisturbed, signum, code, jobs):
        path = tmp_path / "sweep"
        where = (f"hydra.sweep.dir={path}", f"hydra.launcher.jobs={jobs}")
        running = parent(path / "1", "-m", *THREE, *where)
        running.wait_until(running.folder.last_checkpoint.exists)
        children = descendants(running.process.pid)
        running.process.send_signal(signum)
        assert running.end()[0] == code
        assert psutil.wait_procs(children, timeout=5)[1] == []
        assert {*states(path)} != {"completed"}
        done = resume(path)
        assert done.code == 0, done.err
        assert "3 jobs: 3 completed" in done.err
        assert results(path) == results(undisturbed)

    def test_nothing_is_left_to_do(self, undisturbed):
        before = [(undisturbed / job / "result.json").stat().st_mtime_ns for job in "012"]
        assert resume(undisturbed).code == 0
        assert [(undisturbed / job / "result.json").stat().st_mtime_ns for job in "012"] == before

    @pytest.mark.tail
    def test_killed_as_soon_as_its_ledger_names_every_job(self, tmp_path, parent):
        path = tmp_path / "sweep"
        running = parent(path / "0", "-m", "seed=range(0,6)", f"hydra.sweep.dir={path}", *FAST)
        running.wait_until(lambda: Ledger(path).exists() and len(states(path)) == 6)
        running.process.send_signal(signal.SIGKILL)
        assert running.end()[0] == -9
        assert states(path)[-1] == "pending"
        done = resume(path)
        assert (done.code, "6 jobs: 6 completed" in done.err) == (0, True), done.err

    def test_without_a_ledger(self, tmp_path):
        (tmp_path / "multirun.yaml").touch()
        done = resume(tmp_path)
        assert (done.code, "this sweep has no ledger" in done.err) == (2, True)

    @pytest.mark.tail
    def test_a_job_whose_folder_is_gone_stops_no_other(self, tmp_path):
        path, once = tmp_path / "sweep", tmp_path / "failed"
        faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=raise", f"+model.once={once}")
        assert sweep(path, "seed=1,2,3", "hydra.launcher.on_failure=stop", *faulty, *PLAIN).code == 1
        assert states(path) == ["failed", "pending", "pending"]
        shutil.rmtree(path / "2")
        done = resume(path)
        assert (done.code, states(path)) == (1, ["completed", "completed", "failed"])
        assert "holds no run" in done.err

    def test_of_a_sweep_that_is_running(self, tmp_path, parent):
        path = tmp_path / "sweep"
        running = parent(path / "0", "-m", "seed=1,2", *ONE_THREAD, "trainer.epochs=1000", f"hydra.sweep.dir={path}")
        running.wait_until(running.folder.heartbeat.exists)
        done = resume(path)
        assert (done.code, "is being run by another process" in done.err) == (2, True)
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[0] == 143

    @pytest.mark.tail
    def test_after_stopping_at_a_failure(self, tmp_path):
        path, once = tmp_path / "sweep", tmp_path / "failed"
        faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=raise", f"+model.once={once}")
        done = sweep(path, "seed=1,2", "hydra.launcher.on_failure=stop", *faulty, *PLAIN)
        assert (done.code, states(path)) == (1, ["failed", "pending"])
        assert resume(path).code == 0
        assert states(path) == ["completed", "completed"]


class TestLimits:
    def test_a_job_that_takes_too_long_fails(self, tmp_path):
        """A limit of the job's own counts for it; the sweep's is for the others."""
        path = tmp_path / "sweep"
        jobs = ("trainer.max_steps=2,1000000", "launcher.timeout=4,null", "trainer.epochs=1000000", *ONE_THREAD)
        pairs = 'hydra.launcher.exclude=["trainer.max_steps=2,launcher.timeout=null", '
        pairs += '"trainer.max_steps=1000000,launcher.timeout=4"]'
        done = sweep(path, *jobs, pairs, "hydra.launcher.timeout=0.05")
        assert (done.code, states(path)) == (1, ["completed", "failed"])
        assert "took longer than launcher.timeout=0.05 minutes" in Ledger(path).entries()[1].reason

    def test_a_single_run_in_this_process_too(self, tmp_path):
        command = (
            str(ROOT / "run.py"),
            *ONE_THREAD,
            "trainer.epochs=1000000",
            "launcher.timeout=0.05",
            "hydra.run.dir=run",
        )
        done = execute(sys.executable, *command, cwd=tmp_path)
        assert (done.code, "launcher.timeout=0.05" in done.err) == (1, True)
        assert RunFolder(tmp_path / "run").read_result()["error"]["type"] == "TimedOut"

    @pytest.mark.parametrize(("most", "splits"), [("8", [4, 2]), tail("8,3", [4, 16, 2, 8])])
    def test_out_of_memory_is_split_with_the_batch_kept(self, tmp_path, most, splits):
        path = tmp_path / "sweep"
        hungry = ("model=custom", "model._target_=faulty.Hungry", f"+model.most={most}")
        done = sweep(path, "parallel=single,ddp", "hydra.launcher.on_oom=split", *hungry, *PLAIN)
        entries = Ledger(path).entries()
        assert [(entry.state, entry.split) for entry in entries] == [("completed", split) for split in splits], done.err
        config = RunFolder(path / entries[0].folder).read_config()
        assert (config["data"]["batch_size"], config["trainer"]["grad_accumulation"]) == (32, 4)
        first = RunFolder(path / "0").read_result()["error"]
        assert first["type"] == "OutOfMemoryError"

    @pytest.mark.tail
    def test_out_of_memory_is_marked(self, tmp_path):
        path = tmp_path / "sweep"
        done = sweep(path, "model=custom", "model._target_=faulty.Hungry", "+model.most=8,64", *PLAIN)
        assert [(e.state, e.out_of_memory) for e in Ledger(path).entries()] == [("failed", True), ("completed", False)]
        assert done.code == 1


class TestTheWholeSweep:
    def test_several_jobs_at_once_have_cores_of_their_own(self, tmp_path):
        path = tmp_path / "sweep"
        done = sweep(path, "seed=1,2,3", "hydra.launcher.jobs=2", *FAST)
        assert (done.code, states(path)) == (0, ["completed"] * 3), done.err
        threads = {RunFolder(path / job).read_config()["launcher"]["threads_per_rank"] for job in "012"}
        assert len(threads) == 1
        assert "epoch 1/" in (path / "0" / "console.log").read_text()
        assert "epoch 1/" not in done.out

    def test_a_dry_run_leaves_nothing(self, tmp_path):
        (tmp_path / "notes.txt").write_text("keep")
        exclude = 'hydra.launcher.exclude="parallel=ddp,seed=2"'
        options = ("parallel=single,ddp,apex", "seed=1,2", "data.batch_size=32,33", "hydra.launcher.dry_run=true")
        done = sweep(tmp_path, *options, exclude)
        assert done.code == 0, done.err
        assert "5 of 12 jobs would run." in done.out
        assert "excluded by parallel=ddp,seed=2" in done.out
        assert "The nearest values that work: data.batch_size=32 or 34" in done.out
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_excluded_jobs_are_no_part_of_it(self, tmp_path):
        path = tmp_path / "sweep"
        done = sweep(path, "seed=1,2", 'hydra.launcher.exclude=["seed=2", "seed=2,data.batch_size=32"]', *FAST)
        assert (done.code, [entry.overrides[0] for entry in Ledger(path).entries()]) == (0, ["seed=1"])

    def test_one_of_which_every_job_is_excluded_leaves_nothing(self, tmp_path):
        path = tmp_path / "sweep"
        done = sweep(path, "seed=1,2", 'hydra.launcher.exclude=["seed=1", "seed=2"]')
        assert (done.code, "Every job was excluded" in done.err, path.exists()) == (0, True, False)

    def test_its_options_are_nothing_for_a_single_run(self, tmp_path):
        command = (str(ROOT / "run.py"), "hydra.launcher.dry_run=true", "hydra.run.dir=run")
        done = execute(sys.executable, *command, cwd=tmp_path)
        assert (done.code, "Add -m" in done.err, (tmp_path / "run").exists()) == (2, True, False)

    def test_one_of_which_every_job_was_skipped_says_so(self, tmp_path):
        for done in (sweep(tmp_path / "sweep", "precision=tf32", "seed=1,2"), resume(tmp_path / "sweep")):
            assert (done.code, "Every job was skipped" in done.err) == (0, True)
            assert "error:" not in done.err

    @pytest.mark.tail
    def test_what_ranks_lack_is_skipped_and_what_they_refuse_has_failed(self, tmp_path):
        faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=lack,refuse")
        done = sweep(tmp_path / "sweep", *faulty, *PLAIN)
        assert done.code == 1
        jobs = [(entry.state, entry.reason) for entry in Ledger(tmp_path / "sweep").entries()]
        assert jobs == [("skipped", "made to lack something"), ("failed", "made to be refused")]
        assert "skipped: made to lack something" in done.err

    @pytest.mark.tail
    def test_repeats_vary_in_their_seed_or_not(self, tmp_path):
        for how, seeds in {"vary": [5, 6], "same": [5, 5]}.items():
            path = tmp_path / how
            done = sweep(path, "seed=5", "hydra.launcher.repeat=2", f"hydra.launcher.repeat_seed={how}", *FAST)
            assert done.code == 0, done.err
            folders = [path / entry.folder for entry in Ledger(path).entries()]
            assert [RunFolder(folder).read_config()["seed"] for folder in folders] == seeds
            digests = {RunFolder(folder).read_result()["weights_sha256"] for folder in folders}
            assert len(digests) == len(set(seeds))

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            ("jobs=0", "hydra.launcher.jobs=0 is not allowed. Allowed: auto or an integer of at least 1"),
            ("repaet=2", "hydra.launcher.repaet: there is no such key"),
            ('exclude="parallel=dpp"', "hydra.launcher.exclude=parallel=dpp: no job of this sweep has that"),
            ("exclude=parallel=dp,precision=apex", "Write combinations in quotes"),
            ("exclude=parallel=dp", "hydra.launcher.exclude=parallel=dp: no job of this sweep has that"),
            ("on_failure=go", "hydra.launcher.on_failure=go is not allowed. Allowed: continue, stop"),
            ("timeout=-1", "hydra.launcher.timeout=-1"),
            ('exclude="nonsense"', "hydra.launcher.exclude=nonsense: 'nonsense' is not key=value"),
            ("repeat=two", "hydra.launcher.repeat=two is not allowed. Allowed: an integer of at least 1"),
        ],
    )
    def test_a_wrong_option_is_refused_before_anything_runs(self, run_here, tmp_path, option, text):
        done = run_here("-m", f"hydra.sweep.dir={tmp_path / 'sweep'}", "seed=1,2", f"hydra.launcher.{option}")
        assert (done.code, done.err.count("error:")) == (2, 1)
        assert text in done.err
        assert not Ledger(tmp_path / "sweep").exists()


def test_a_folder_whose_name_is_too_long_is_refused_and_leaves_nothing(run_here, tmp_path):
    subdir = "hydra.sweep.subdir=${hydra.job.override_dirname}"
    done = run_here("-m", f"hydra.sweep.dir={tmp_path / 'sweep'}", subdir, "seed=1,2", f"notes={'n' * 250}")
    assert done.code == 2
    assert ": the name of a folder has at most 255 bytes, and this one 263. Leave it out, or keys of it" in done.err
    assert [*tmp_path.iterdir()] == []


class TestOthersOfHydra:
    """Launchers and sweepers that people have installed already."""

    @pytest.mark.tail
    def test_joblib_runs_our_jobs(self, tmp_path):
        path = tmp_path / "sweep"
        done = sweep(path, "hydra/launcher=joblib", "parallel=single,ddp", *FAST)
        assert done.code == 0, done.err
        assert [RunFolder(path / job).read_result()["status"] for job in "01"] == ["completed"] * 2

    def test_basic_runs_our_jobs(self, tmp_path):
        path = tmp_path / "sweep"
        faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=sys.exit,nothing")
        done = sweep(path, "hydra/launcher=basic", *faulty, *PLAIN)
        assert done.code == 1
        assert [RunFolder(path / job).read_result()["status"] for job in "01"] == ["failed", "completed"]

    def test_optuna_searches_with_ours(self, tmp_path):
        path = tmp_path / "sweep"
        search = ("hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=3")
        batches = ("hydra.sweeper.n_jobs=2", "hydra.sweeper.sampler.seed=1", "optimizer.lr=interval(0.001,0.1)")
        done = sweep(path, *search, *batches, "hydra.launcher.repeat=2", *FAST)
        assert done.code == 0, done.err
        entries = Ledger(path).entries()
        assert [(entry.job, entry.repeat) for entry in entries] == [(j, r) for j in range(3) for r in (1, 2)]
        means = [(a.objective + b.objective) / 2 for a, b in zip(entries[::2], entries[1::2], strict=True)]
        best = yaml.safe_load((path / "optimization_results.yaml").read_text())
        assert best["best_value"] == pytest.approx(max(means))

    @pytest.mark.tail
    def test_optuna_hears_of_failures(self, tmp_path):
        """It has its own limit of how many may fail."""
        path = tmp_path / "sweep"
        faulty = ("model=custom", "model._target_=faulty.Faulty", "+model.how=choice(raise,nothing)")
        search = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=2")
        grid = ("hydra/sweeper/sampler=grid", "hydra.sweeper.max_failure_rate=0.6")
        done = sweep(path, *search, *grid, *faulty, *PLAIN)
        assert sorted(states(path)) == ["completed", "failed"], done.err
        assert done.code == 1

    @pytest.mark.tail
    def test_a_search_for_what_is_not_measured_says_so(self, tmp_path):
        path = tmp_path / "sweep"
        search = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=1", "optimizer.lr=interval(0.001,0.1)")
        done = sweep(path, *search, *FAST, "trainer.evaluate_every=0")
        assert done.code == 2
        assert (
            "trainer.evaluate_every=0 measures nothing that a search could optimize. Set trainer.evaluate_every=1"
            in done.err
        )
        assert not (path / "0").exists()  # it was refused before its first trial
