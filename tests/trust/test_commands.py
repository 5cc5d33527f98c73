"""Configs and run folders from others, with real commands: what is not trusted has no effect at all."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config.lookup import CONF, SECTIONS
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS, FAST, RUN, execute
from tests.tail import each_once, tail
from tests.trust.foreign import CUSTOM, OWN, REFUSED, assert_refused, given, snapshot

pytestmark = pytest.mark.ci

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


@pytest.mark.parametrize(("target", "by"), each_once(TARGETS, ["--config-path", "resume"]))
def test_a_target_that_can_run_anything_is_refused(run_here, resume_here, here, config, target, by):
    config["model"] = {"_target_": target, "name": "custom", "num_classes": None, "pretrained": None, **TARGETS[target]}
    folder = given(here / "theirs", config)
    before = snapshot(folder)
    saved = ("--config-path", str(folder), "--config-name", "run")
    done = resume_here("theirs") if by == "resume" else run_here(*saved)
    assert_refused(done, here, REFUSED, f"model._target_={target}", "trust=[", "manyheads.yaml")
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
                "_target_": "manyheads.runner.scheduler.rank.schedules.Constant",
                "defaults": [{"/optimizer@hydra.callbacks.x": "saved"}],
            },
            "optimizer": {"name": "custom", "_target_": "os.mkdir", "path": "mark"},
        },
    ],
)
def test_other_ways_to_name_one_are_refused(run_here, here, config, change):
    folder = given(here / "theirs", config | change)
    assert_refused(run_here("--config-path", str(folder), "--config-name", "run"), here)


class TestTheUsersWord:
    @pytest.fixture
    def theirs(self, here, config):
        config["model"] = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
        return given(here / "theirs", config)

    def test_it_runs_when_he_trusts_the_package(self, run_command, here, theirs):
        saved = ("--config-path", str(theirs), "--config-name", "run")
        done = run_command(*saved, "trust=[my_package]", "trainer.epochs=2")
        assert done.code == 0, done.err
        assert (here / "imported").exists()

    @pytest.mark.parametrize("way", ["typed", "settings", "target"])
    def test_he_can_say_so_in_several_ways(self, run_here, here, theirs, way):
        """Then the config is refused for another reason, which this test gives it."""
        if way == "settings":
            (here / "settings").mkdir()
            (here / "settings" / "manyheads.yaml").write_text("trust: [my_package]\n")
        typed = {"typed": ["trust=[my_package]"], "target": ["++model._target_=my_package.Net"]}.get(way, [])
        done = run_here("--config-path", str(theirs), "--config-name", "run", *typed, "trainer.epochs=0")
        assert_refused(done, here, "error: trainer.epochs=0 is not allowed")

    @pytest.mark.parametrize("typed", ["trust=[my_pack]", "trust=[other]", "trust=[my_package.other]"])
    def test_another_package_is_not_meant(self, run_here, here, theirs, typed):
        assert_refused(run_here("--config-path", str(theirs), "--config-name", "run", typed), here, REFUSED)

    def test_an_unreadable_setting_is_refused(self, run_here, here, theirs):
        (here / "settings").mkdir()
        (here / "settings" / "manyheads.yaml").write_text("trust: {my_package: yes}\n")
        assert_refused(run_here("--config-path", str(theirs), "--config-name", "run"), here, "manyheads.yaml")

    def test_going_on_with_it(self, resume, resume_here, here, theirs):
        assert_refused(resume_here("theirs", "trust=[other]"), here, REFUSED)
        assert_refused(resume_here("theirs", "seed=2"), here, "has no checkpoint to resume from")
        (here / "theirs" / "checkpoints").mkdir()
        (here / "theirs" / "checkpoints" / "last.pt").touch()
        done = resume("theirs", "trainer.epochs=9")
        assert_refused(done, here, REFUSED)
        (here / "theirs" / "checkpoints" / "last.pt").unlink()
        done = resume("theirs", "trust=[my_package]")
        assert done.code == 0, done.err

    @pytest.mark.tail
    def test_of_a_sweep_it_is_said_once(self, run_command, run_here, here, theirs):
        saved = ("--config-path", str(theirs), "--config-name", "run", "-m", "hydra.sweep.dir=sweep")
        refused = run_here(*saved, "seed=1,2")
        assert (refused.code, refused.err.count(REFUSED)) == (2, 1)
        assert not {"imported", "sweep"} & set(os.listdir(here))
        done = run_command(*saved, "trust=my_package,other", "seed=1,2")
        assert done.code == 0, done.err
        assert len(list((here / "sweep").glob("*/result.json"))) == 2


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run, and what it was sealed with; made once."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "my_package.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        done = execute(sys.executable, str(RUN), *CUSTOM, "hydra.run.dir=own", cwd=folder)
    assert done.code == 0, done.err
    shutil.rmtree(folder / "own" / "checkpoints")
    (folder / "own" / "result.json").unlink()
    return folder


class TestRunsOfTheUsersOwn:
    @pytest.fixture
    def own(self, recorded, here):
        for name in ("own", "state"):
            shutil.copytree(recorded / name, here / name)
        return RunFolder(here / "own")

    @pytest.mark.parametrize("saved", [(".hydra", "config"), tail((".", "run"))])
    def test_are_repeated_and_resumed_without_a_word(self, run_command, resume, own, saved):
        assert own.owns(**{own.COMPOSED: own.composed.read_text()})
        done = run_command("--config-path", str(own.path / saved[0]), "--config-name", saved[1], "seed=2")
        assert done.code == 0, done.err
        done = resume("own")
        assert done.code == 0, done.err

    def test_of_another_user_or_edited_ones_are_not(self, run_here, resume_here, here, own, monkeypatch):
        saved = ("--config-path", str(own.path), "--config-name", "run")
        composed = ("--config-path", str(own.composed.parent))
        provenance = json.loads(own.provenance.read_text())
        text = own.config.read_text()
        own.config.write_text(text.replace("my_package.Net", "my_package.make"))
        own.composed.write_text(own.composed.read_text().replace("my_package.Net", "my_package.make"))
        for done in (run_here(*saved), run_here(*composed), resume_here("own")):
            assert_refused(done, here, "model._target_=my_package.make")
        own.config.write_text(text)
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "other"))
        own.provenance.write_text(json.dumps(provenance))  # it may well name this user and host
        for done in (run_here(*saved), resume_here("own")):
            assert_refused(done, here, "model._target_=my_package.Net")

    def test_what_is_typed_later_is_the_users_too(self, run_command, own):
        saved = ("--config-path", str(own.path), "--config-name", "run")
        done = run_command(*saved, "model.width=8", "optimizer=adam", "trainer.max_steps=1")
        assert done.code in (0, 2), done.err
        assert REFUSED not in done.err


HYDRA = {
    "a callback": {"callbacks": {"x": {"_target_": "hydra_would_import.make"}}},
    "a formatter": {"job_logging": {"formatters": {"simple": {"()": "hydra_would_import.make"}}}},
    "a launcher": {"launcher": {"_target_": "hydra_would_import.make"}},
    "configs of a package": {"searchpath": ["pkg://hydra_would_import"]},
    "environment": {"job": {"env_set": {"XDG_CONFIG_HOME": "theirs"}}},
    "a folder for runs": {"run": {"dir": "mark"}},
    "what Hydra notes itself": {
        "runtime": {"choices": {"+hydra.callbacks.x={_target_:os.mkdir,path:mark}#hydra/": "a"}},
    },
}


@pytest.mark.parametrize(("attack", "mode"), each_once(HYDRA, ["--run", "--multirun"]))
def test_hydras_own_section_is_refused(run_here, here, config, monkeypatch, attack, mode):
    """Each way to write it: test_content.py."""
    monkeypatch.syspath_prepend(str(here))
    given(here / "theirs", config | {"hydra": HYDRA[attack]})
    done = run_here(mode, "--config-path", str(here / "theirs"), "--config-name", "run")
    assert_refused(done, here, "theirs/run.yaml: hydra: ", "Hydra's own section", f"{COMMANDS} trust {here / 'theirs'}")


COMPOSED = {
    "over conf/": {"mine.yaml": {"defaults": ["config", "_self_"]}},
    "with an option of its own": {"mine.yaml": {"defaults": ["config"]}, "model/x.yaml": {"_target_": "os.system"}},
    "with a file instead of Hydra's": {"mine.yaml": {}, "hydra/launcher/basic.yaml": {"_target_": "os.mkdir"}},
    "with parts of a run": {"mine.yaml": {"defaults": [{"model": "x"}]}},
}


@pytest.mark.parametrize(("attack", "way"), each_once(COMPOSED, ["--config-path", "--config-dir", "search path"]))
def test_a_folder_that_is_composed_is_refused_as_a_whole(run_here, here, attack, way):
    for name, content in COMPOSED[attack].items():
        given((here / "theirs" / name).parent, content, name=Path(name).name)
    theirs = str(here / "theirs")
    arguments = {
        "--config-path": ("--config-path", theirs, "--config-name", "mine", f"hydra.searchpath=[file://{CONF}]"),
        "--config-dir": ("--config-dir", theirs),
        "search path": (f"hydra.searchpath=[file://{theirs}]",),
    }
    done = run_here("-m", *arguments[way], "seed=1,2")
    assert_refused(done, here, "configs that are composed can run any code", f"{COMMANDS} trust {theirs}")


def test_a_package_of_configs_is_not_imported(run_here, here):
    assert_refused(run_here("--config-path", "pkg://hydra_would_import"), here)


def test_what_is_typed_over_it_is_the_users_own(run_command, here, config):
    given(here / "theirs", config | {"seed": 5})
    saved = ("--config-path", str(here / "theirs"), "--config-name", "run")
    done = run_command(*saved, "hydra.run.dir=mine", "hydra.job_logging.handlers.console.level=ERROR")
    assert done.code == 0, done.err
    assert yaml.safe_load((here / "mine" / "run.yaml").read_text())["seed"] == 5


@pytest.mark.parametrize("launcher", ["basic", "manyheads", tail("joblib")])
def test_every_job_of_a_sweep_is_looked_at(run_command, run_here, here, config, launcher):
    """Also where Hydra runs them, in whatever process."""
    section = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    given(here / "theirs", config | {"model": section})
    arguments = ("--config-path", str(here / "theirs"), "--config-name", "run", "seed=1,2")
    run = run_command if launcher == "joblib" else run_here
    done = run("-m", *arguments, f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep")
    assert done.code in (1, 2), done.err
    assert "model._target_=my_package.Net" in done.err
    assert not {"imported", "called"} & set(os.listdir(here))
    assert not list(here.glob("sweep/*/run.yaml"))


@pytest.mark.parametrize("launcher", ["basic", tail("joblib")])
def test_every_job_of_a_sweep_is_trusted(run_command, here, config, launcher):
    section = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    saved = ("--config-path", str(given(here / "theirs", config | {"model": section})), "--config-name", "run")
    typed = (f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep", "seed=1,2", "trust=[my_package]")
    done = run_command("-m", *saved, *typed)
    assert done.code == 0, done.err
    for job in "01":
        provenance = json.loads((here / "sweep" / job / "provenance.json").read_text())
        assert provenance["composed_from"] == str(here / "theirs" / "run.yaml")


@pytest.mark.parametrize("launcher", ["basic", "manyheads"])
def test_a_run_that_lies_where_a_sweep_would_put_one(run_command, here, config, launcher):
    """Such a folder looks as if the sweep had planned that run."""
    config["model"] = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    given(here / "planted", config)
    typed = (f"hydra/launcher={launcher}", "hydra.sweep.dir=sweep", "hydra.sweep.subdir=../planted", "seed=1")
    done = run_command("-m", *FAST, *typed)
    assert done.code in (1, 2)
    assert "model._target_=my_package.Net" in done.err or "already holds a run" in done.err
    assert not {"imported", "called"} & set(os.listdir(here))


def test_a_run_that_lies_where_another_one_shall(run_here, here, config):
    """Its own config composes no callback that gives each run a folder of its own."""
    given(here / "planted", config)
    whole = {"defaults": [*({group: "x"} for group in GROUPS), "_self_"]} | {k: config[k] for k in ("seed", *SECTIONS)}
    given(here / "theirs", whole, name="mine.yaml")
    for group in GROUPS:
        given(here / "theirs" / group, config[group], name="x.yaml")
    seal.trust(here / "theirs", None)
    done = run_here("--config-path", str(here / "theirs"), "--config-name", "mine", "hydra.run.dir=planted")
    assert_refused(done, here, "planted already holds a run")


@pytest.mark.parametrize("key", ["launcher.arguments", "launcher.hostfile", "launcher.network_interface"])
def test_what_steers_a_launcher_must_be_typed(run_here, resume_here, here, config, key):
    shared = {
        key: config["launcher"][key] for key in ("nproc_per_node", "threads_per_rank", "stall_timeout", "timeout")
    }
    options = yaml.safe_load((CONF / "launcher" / "horovodrun.yaml").read_text())
    config["launcher"] = {**options, **shared, "controller": "gloo", key.partition(".")[2]: "$(touch mark)"}
    folder = given(here / "theirs", config)
    saved = ("--config-path", str(folder), "--config-name", "run")
    assert_refused(run_here(*saved), here, f"{key}=$(touch mark)")
    assert_refused(resume_here("theirs"), here, f"{key}=$(touch mark)", f"trust=[{key}]")
    for typed in (f"{key}=eth9", "launcher=inline"):
        done = run_here(*saved, "--cfg", "job", typed)
        assert done.code == 0, done.err


class TestAFolderToGoOnWith:
    @pytest.mark.parametrize("change", [{"controller": "gloo --x"}, {"nproc_per_node": "1; touch mark"}])
    def test_values_that_nobody_has_checked(self, resume_here, here, config, change):
        options = yaml.safe_load((CONF / "launcher" / "horovodrun.yaml").read_text())
        config["launcher"] = {**options, **change}
        given(here / "theirs", config)
        assert_refused(resume_here("theirs"), here, f"launcher.{next(iter(change))}")

    @pytest.mark.parametrize("link", ["run.log", "logs", "steps.csv"])
    def test_links_that_lead_out_of_it(self, resume_here, here, config, link):
        target = here / "precious"
        target.mkdir() if link == "logs" else target.write_text("mine")
        before = snapshot(target)
        (given(here / "theirs", config) / link).symlink_to(target)
        assert_refused(resume_here("theirs"), here, "outside")
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
            lines = [{"options": {}, "arguments": []}, *entries]
            (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return folder

        return write

    @pytest.mark.parametrize(("second", "name"), each_once(["1", "../elsewhere"], ["run.yaml", ".hydra/config.yaml"]))
    def test_no_job_starts_if_one_is_refused(self, resume_here, here, sweep, second, name):
        folder = sweep(second, name)
        before = snapshot(here)
        done = resume_here("sweep")
        assert_refused(done, here, "names a job outside it" if ".." in second else "model._target_=my_package.Net")
        assert {path: time for path, time in snapshot(here).items() if "state" not in path} == before
        assert not (folder / "0" / "result.json").exists()

    def test_a_harmless_job_outside_is_refused_too(self, resume_here, here, sweep, config):
        sweep("../elsewhere")
        given(here / "elsewhere", config)
        assert_refused(resume_here("sweep"), here, "names a job outside it")

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
