"""Configs and run folders from others, with real commands: what is not trusted has no effect at all."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config.schema import CONF
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_sealed_here
from tests.conftest import FAST, execute

OWN = """
import pathlib, torch
pathlib.Path("imported").touch()
class Net(torch.nn.Sequential):
    def __init__(self, num_classes, width=4):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, width), torch.nn.Linear(width, num_classes))
def make(*_, **__):
    pathlib.Path("called").touch()
"""
CUSTOM = (*(o for o in FAST if "width" not in o), "model=custom", "model._target_=my_package.Net")
REFUSED = "this config is not from here"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The user's working directory, with a package of his own; whoever imports that leaves a mark."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "my_package.py").write_text(OWN)
    (tmp_path / "hydra_would_import.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def config(finished_run):
    """A run config, to be changed."""
    return finished_run.read_config()


@pytest.fixture
def resume(here):
    return lambda *arguments: execute(sys.executable, "-m", "manyheads.runner", "resume", *arguments, cwd=here)


def given(folder: Path, config: dict, *, name: str = "run.yaml") -> Path:
    """Somebody's folder with this config in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(config))
    return folder


def snapshot(folder: Path) -> dict:
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def assert_refused(done, here: Path, *parts: str) -> None:
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err
    assert done.err.startswith("error: ")
    for part in parts:
        assert part in done.err
    assert not {"imported", "called", "mark", "outputs"} & set(os.listdir(here))


TARGETS = {
    "torch.hub.load": {"repo_or_dir": "x", "model": "y"},
    "torch.utils.cpp_extension.load": {"name": "x", "sources": ["mark.cpp"]},
    "os.system": {"command": "touch mark"},
    "os.mkdir": {"path": "mark"},
    "builtins.exec": {"source": "open('mark', 'w')"},
    "subprocess.Popen": {"args": ["touch", "mark"]},
    "torch.utils.cpp_extension.subprocess.Popen": {"args": ["touch", "mark"]},
    "my_package.Net": {},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("by", ["--config-path", "resume"])
def test_a_target_that_can_run_anything_is_refused(run_command, resume, here, config, target, by):
    config["model"] = {"_target_": target, "name": "custom", "num_classes": None, "pretrained": None, **TARGETS[target]}
    folder = given(here / "theirs", config)
    before = snapshot(folder)
    saved = ("--config-path", str(folder), "--config-name", "run")
    done = resume("theirs") if by == "resume" else run_command(*saved)
    assert_refused(done, here, REFUSED, f"model._target_={target}", "trust=[", "MANYHEADS_TRUST=", "manyheads.yaml")
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    "change",
    [
        {"loss": {"_target_": "my_package.make"}},
        {"loss": {"_target_": "torch.nn.CrossEntropyLoss", "weight": {"_target_": "my_package.make"}}},
        {"trust": ["my_package"], "loss": {"_target_": "my_package.make"}},
        {"model": {"_target_": "${loss.x}", "name": "custom"}, "loss": {"_target_": "a.B", "x": "my_package.make"}},
        {
            "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
            "scheduler": {
                "name": "constant",
                "_target_": "manyheads.runner.scheduler.rank.Constant",
                "defaults": [{"/optimizer@hydra.callbacks.x": "saved"}],
            },
            "optimizer": {"name": "custom", "_target_": "os.mkdir", "path": "mark"},
        },
    ],
)
def test_other_ways_to_name_one_are_refused(run_command, here, config, change):
    folder = given(here / "theirs", config | change)
    assert_refused(run_command("--config-path", str(folder), "--config-name", "run"), here)


class TestTheUsersWord:
    @pytest.fixture
    def theirs(self, here, config):
        config["model"] = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
        return given(here / "theirs", config)

    @pytest.mark.parametrize("way", ["typed", "environment", "settings", "target"])
    def test_it_runs_when_he_trusts_the_package(self, run_command, here, theirs, monkeypatch, way):
        if way == "environment":
            monkeypatch.setenv("MANYHEADS_TRUST", "my_package")
        if way == "settings":
            (here / "settings").mkdir()
            (here / "settings" / "manyheads.yaml").write_text("trust: [my_package]\n")
        typed = {"typed": ["trust=[my_package]"], "target": ["++model._target_=my_package.Net"]}.get(way, [])
        done = run_command("--config-path", str(theirs), "--config-name", "run", *typed, "trainer.epochs=2")
        assert done.code == 0, done.err
        assert (here / "imported").exists()

    @pytest.mark.parametrize("typed", ["trust=[my_pack]", "trust=[other]", "trust=[my_package.other]"])
    def test_another_package_is_not_meant(self, run_command, here, theirs, typed):
        assert_refused(run_command("--config-path", str(theirs), "--config-name", "run", typed), here, REFUSED)

    def test_an_unreadable_setting_is_refused(self, run_command, here, theirs):
        (here / "settings").mkdir()
        (here / "settings" / "manyheads.yaml").write_text("trust: {my_package: yes}\n")
        assert_refused(run_command("--config-path", str(theirs), "--config-name", "run"), here, "manyheads.yaml")

    def test_going_on_with_it(self, resume, here, theirs):
        assert_refused(resume("theirs", "trust=[other]"), here, REFUSED)
        assert_refused(resume("theirs", "seed=2"), here, "a run goes on as it was frozen")
        done = resume("theirs", "trust=[my_package]")
        assert done.code == 0, done.err

    def test_of_a_sweep_it_is_said_once(self, run_command, here, theirs):
        saved = ("--config-path", str(theirs), "--config-name", "run", "-m", "hydra.sweep.dir=sweep")
        assert run_command(*saved, "seed=1,2").code == 2
        assert not (here / "imported").exists()
        shutil.rmtree(here / "sweep", ignore_errors=True)
        done = run_command(*saved, "trust=my_package,other", "seed=1,2")
        assert done.code == 0, done.err
        assert len(list((here / "sweep").glob("*/result.json"))) == 2


class TestRunsOfTheUsersOwn:
    @pytest.fixture
    def own(self, run_command, here):
        done = run_command(*CUSTOM, "hydra.run.dir=own")
        assert done.code == 0, done.err
        (here / "imported").unlink()
        shutil.rmtree(here / "own" / "checkpoints")
        (here / "own" / "result.json").unlink()
        return RunFolder(here / "own")

    @pytest.mark.parametrize("saved", [(".hydra", "config"), (".", "run")])
    def test_are_repeated_and_resumed_without_a_word(self, run_command, resume, own, saved):
        assert is_sealed_here(own.config)
        assert is_sealed_here(own.composed)
        done = run_command("--config-path", str(own.path / saved[0]), "--config-name", saved[1], "seed=2")
        assert done.code == 0, done.err
        done = resume("own")
        assert done.code == 0, done.err

    def test_of_another_user_or_edited_ones_are_not(self, run_command, resume, here, own, monkeypatch):
        saved = ("--config-path", str(own.path), "--config-name", "run")
        composed = ("--config-path", str(own.composed.parent))
        provenance = json.loads(own.provenance.read_text())
        text = own.config.read_text()
        own.config.write_text(text.replace("my_package.Net", "my_package.make"))
        own.composed.write_text(own.composed.read_text().replace("my_package.Net", "my_package.make"))
        for done in (run_command(*saved), run_command(*composed), resume("own")):
            assert_refused(done, here, "model._target_=my_package.make")
        own.config.write_text(text)
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "other"))
        own.provenance.write_text(json.dumps(provenance))  # it may well name this user and host
        for done in (run_command(*saved), resume("own")):
            assert_refused(done, here, "model._target_=my_package.Net")

    def test_what_is_typed_later_is_the_users_too(self, run_command, own):
        saved = ("--config-path", str(own.path), "--config-name", "run")
        done = run_command(*saved, "model.width=8", "optimizer=adam", "trainer.max_steps=1")
        assert done.code in (0, 2), done.err
        assert REFUSED not in done.err


HYDRA = {
    "a callback": {"callbacks": {"x": {"_target_": "hydra_would_import.make"}}},
    "a callback that makes a folder": {"callbacks": {"x": {"_target_": "os.mkdir", "path": "mark"}}},
    "more for our callback": {"callbacks": {"fresh_folder": {"x": {"_target_": "os.mkdir", "path": "mark"}}}},
    "a formatter": {"job_logging": {"formatters": {"simple": {"()": "hydra_would_import.make"}}}},
    "a handler": {"job_logging": {"handlers": {"file": {"class": "hydra_would_import.make"}}}},
    "a stream": {"hydra_logging": {"handlers": {"console": {"stream": "ext://hydra_would_import.make"}}}},
    "a log anywhere": {"job_logging": {"handlers": {"file": {"filename": "mark"}}}},
    "a launcher": {"launcher": {"_target_": "hydra_would_import.make"}},
    "a sweeper": {"sweeper": {"_target_": "hydra_would_import.make"}},
    "an argument": {"sweeper": {"params": {"x": {"_target_": "os.mkdir", "path": "mark"}}}},
    "environment": {"job": {"env_set": {"MANYHEADS_TRUST": "my_package"}}},
    "configs of a package": {"searchpath": ["pkg://hydra_would_import"]},
    "a folder for configs": {"output_subdir": "../../mark"},
    "no folder for configs": {"output_subdir": None},  # whatever lies there already would be taken for this run's
    "overrides": {"overrides": {"hydra": ["hydra.run.dir=mark"]}},
    "a directory": {"job": {"chdir": True}},
}


@pytest.fixture
def with_hydra(here):
    """Somebody's config that Hydra composes over conf/, with a section for Hydra."""

    def write(hydra: dict, **more) -> list[str]:
        section = {"searchpath": [f"file://{CONF}"], **hydra}
        if "searchpath" in hydra:
            section["searchpath"] = [*hydra["searchpath"], f"file://{CONF}"]
        given(here / "theirs", {"defaults": ["config", "_self_"], "hydra": section, **more}, name="mine.yaml")
        return ["--config-path", str(here / "theirs"), "--config-name", "mine"]

    return write


@pytest.mark.parametrize("mode", [[], ["-m", "seed=1,2"]], ids=["run", "sweep"])
@pytest.mark.parametrize("attack", HYDRA)
def test_hydras_own_section_can_run_nothing(run_command, here, with_hydra, monkeypatch, attack, mode):
    monkeypatch.syspath_prepend(str(here))
    assert_refused(run_command(*with_hydra(HYDRA[attack]), *mode, *FAST), here)


@pytest.mark.parametrize("planted", ["hydra/launcher/basic.yaml", "hydra/config.yaml", "hydra/sweeper/basic.yaml"])
def test_files_that_hydra_would_take_for_its_own(run_command, here, with_hydra, planted):
    arguments = with_hydra({})
    evil = {"_target_": "hydra_would_import.make", "callbacks": {"x": {"_target_": "os.mkdir", "path": "mark"}}}
    given((here / "theirs" / planted).parent, evil, name=Path(planted).name)
    done = run_command(*arguments, "-m", *FAST, "hydra/launcher=basic", "seed=1,2")
    assert done.code == 2, done.err
    assert not (here / "mark").exists()


@pytest.mark.parametrize("launcher", ["basic", "manyheads", "joblib"])
def test_what_a_sweep_would_choose_itself(run_command, here, with_hydra, launcher):
    arguments = with_hydra({"sweeper": {"params": {"+model._target_": "my_package.make,my_package.Net"}}})
    done = run_command(*arguments, "-m", *FAST, f"hydra/launcher={launcher}", "seed=1,2")
    assert done.code != 0
    assert "model._target_=my_package.make" in done.err
    assert not {"imported", "called"} & set(os.listdir(here))
    assert not list(here.rglob("run.yaml"))


def test_a_run_that_lies_where_a_sweep_would_put_one(run_command, here, config, with_hydra):
    """Such a folder looks as if the sweep had planned that run."""
    config["model"] = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    given(here / "planted", config)
    arguments = with_hydra({"sweep": {"dir": "sweep", "subdir": "../planted"}})
    done = run_command(*arguments, "-m", *FAST, "hydra/launcher=basic", "seed=1")
    assert done.code == 2
    assert "model._target_=my_package.Net" in done.err
    assert not {"imported", "called"} & set(os.listdir(here))


def test_a_config_of_ones_own_with_harmless_keys_works(run_command, here, with_hydra):
    harmless = {
        "run": {"dir": "mine/${now:%H}"},
        "job_logging": {"handlers": {"console": {"level": "ERROR"}}},
        "launcher": {"repeat": 2},
        "help": {"app_name": "mine"},
    }
    arguments = with_hydra(harmless, seed=5, loss={"_target_": "torch.nn.MultiMarginLoss"})
    done = run_command(*arguments, *FAST)
    assert done.code == 0, done.err
    (path,) = (here / "mine").glob("*/run.yaml")
    assert yaml.safe_load(path.read_text())["seed"] == 5


def test_an_additional_folder_of_configs_is_looked_at(run_command, here):
    section = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    given(here / "more" / "model", section, name="theirs.yaml")
    assert_refused(run_command("--config-dir", "more", "model=theirs", *CUSTOM[:-2]), here, "model._target_=my_package")
    arguments = (f"hydra.searchpath=[file://{here}/more]", "model=theirs", *CUSTOM[:-2])
    assert_refused(run_command(*arguments), here, "model._target_=my_package")
    assert_refused(run_command("--config-path", "pkg://hydra_would_import"), here)


@pytest.mark.parametrize("key", ["launcher.arguments", "launcher.hostfile", "launcher.network_interface"])
def test_what_steers_a_launcher_must_be_typed(run_command, resume, here, config, key):
    shared = {
        key: config["launcher"][key] for key in ("nproc_per_node", "threads_per_rank", "stall_timeout", "timeout")
    }
    options = yaml.safe_load((CONF / "launcher" / "horovodrun.yaml").read_text())
    config["launcher"] = {**options, **shared, "controller": "gloo", key.partition(".")[2]: "$(touch mark)"}
    folder = given(here / "theirs", config)
    saved = ("--config-path", str(folder), "--config-name", "run")
    assert_refused(run_command(*saved), here, f"{key}=$(touch mark)")
    assert_refused(resume("theirs"), here, f"{key}=$(touch mark)", f"trust=[{key}]")
    for typed in (f"{key}=eth9", "launcher=inline"):
        done = run_command(*saved, "--cfg", "job", typed)
        assert done.code == 0, done.err


class TestAFolderToGoOnWith:
    @pytest.mark.parametrize("change", [{"controller": "gloo --x"}, {"nproc_per_node": "1; touch mark"}])
    def test_values_that_nobody_has_checked(self, resume, here, config, change):
        options = yaml.safe_load((CONF / "launcher" / "horovodrun.yaml").read_text())
        config["launcher"] = {**options, **change}
        given(here / "theirs", config)
        assert_refused(resume("theirs"), here, f"launcher.{next(iter(change))}")

    @pytest.mark.parametrize("link", ["run.log", "logs", "steps.csv"])
    def test_links_that_lead_out_of_it(self, resume, here, config, link):
        target = here / "precious"
        target.mkdir() if link == "logs" else target.write_text("mine")
        before = snapshot(target)
        (given(here / "theirs", config) / link).symlink_to(target)
        assert_refused(resume("theirs"), here, "leads out of")
        assert snapshot(target) == before

    def test_a_harmless_one_is_gone_on_with(self, resume, here, config):
        (given(here / "theirs", config) / "steps").symlink_to("steps.csv")
        done = resume("theirs")
        assert done.code == 0, done.err


class TestASweepToGoOnWith:
    @pytest.fixture
    def sweep(self, here, config):
        """Two jobs, the second one bad. ``write``: with the second one in that folder, as frozen or as composed."""

        def write(second: str = "1", name: str = "run.yaml", target: str = "my_package.Net") -> Path:
            folder = here / "sweep"
            given(folder / "0", config)
            bad = {"_target_": target, "name": "custom", "num_classes": None, "pretrained": None}
            given((folder / second / name).parent, config | {"model": bad}, name=Path(name).name)
            entries = [{"job": job, "folder": path, "overrides": []} for job, path in enumerate(("0", second))]
            lines = [{"options": {}}, *entries]
            (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return folder

        return write

    @pytest.mark.parametrize("name", ["run.yaml", ".hydra/config.yaml"])
    @pytest.mark.parametrize("second", ["1", "../elsewhere"])
    def test_no_job_starts_if_one_is_refused(self, resume, here, sweep, second, name):
        folder = sweep(second, name)
        before = snapshot(here)
        done = resume("sweep")
        assert_refused(done, here, "names a job outside of it" if ".." in second else "model._target_=my_package.Net")
        assert {path: time for path, time in snapshot(here).items() if "state" not in path} == before
        assert not (folder / "0" / "result.json").exists()

    def test_a_harmless_job_outside_is_refused_too(self, resume, here, sweep, config):
        sweep("../elsewhere")
        given(here / "elsewhere", config)
        assert_refused(resume("sweep"), here, "names a job outside of it")

    def test_with_trust_all_run(self, resume, here, sweep):
        folder = sweep()
        done = resume("sweep", "trust=[my_package]")
        assert done.code == 0, done.err
        assert len(list(folder.glob("*/result.json"))) == 2

    def test_the_users_own_goes_on_without_a_word(self, run_command, resume, here):
        """Also with a job that was refused, and never frozen."""
        done = run_command("-m", "hydra.sweep.dir=sweep", *CUSTOM, "data.batch_size=32,100000", timeout=200)
        assert done.code == 1
        shutil.rmtree(here / "sweep" / "0" / "checkpoints")
        (here / "sweep" / "0" / "result.json").unlink()
        entry = {"job": 0, "folder": "0", "overrides": [], "state": "running"}
        with open(here / "sweep" / "ledger.jsonl", "a") as ledger:
            ledger.write(json.dumps(entry) + "\n")
        done = resume("sweep")
        assert REFUSED not in done.err
        assert (here / "sweep" / "0" / "result.json").exists()
