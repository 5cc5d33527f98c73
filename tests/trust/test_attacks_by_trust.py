"""Trusting: what is shown is what is trusted, there and nowhere else."""

import json
import re
import shutil

import pytest
import yaml

from manyheads.launchers.sweep.pruning import NoPruning
from manyheads.launchers.sweep.run_jobs import command_of, finish
from manyheads.runner.config.project import conf_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS
from tests.trust.foreign import assert_refused, given

EVIL = {"_target_": "os.system", "name": "x", "command": "touch mark", "num_classes": None, "pretrained": None}


@pytest.fixture
def evil(config):
    return config | {"model": EVIL}


def sweep_of(folder, **jobs: dict):
    """Somebody's sweep whose jobs were composed, and never frozen."""
    for name, config in jobs.items():
        given(folder / name / ".hydra", config, name="config.yaml")
    lines = [
        {"options": {}, "arguments": []},
        *({"job": n, "folder": name, "overrides": []} for n, name in enumerate(jobs)),
    ]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


class TestOfARun:
    def test_its_composed_config_is_shown_too(self, trust_here, here, config, evil):
        given(here / "a", config)
        given(here / "a" / ".hydra", evil, name="config.yaml")
        shown = trust_here("a").out
        assert "a: names only this project's own code" in shown
        assert "a, as composed: model._target_=os.system" in shown

    @pytest.mark.parametrize("group", ["model", "parallel", "data"])
    def test_a_class_that_declares_an_option_is_shown_and_not_imported(self, trust_here, here, config, group):
        given(here / "a", config | {group: config[group] | {"_option_": "my_package.Net"}})
        assert f"{group}._option_=my_package.Net" in trust_here("a").out
        assert not (here / "imported").exists()

    def test_a_class_that_is_named_by_reference_is_shown(self, trust_here, here, config):
        given(here / "a", config | {"notes": "os.system", "model": EVIL | {"_target_": "${notes}"}})
        assert "model._target_=os.system" in trust_here("a").out

    def test_another_folder_with_the_same_files_is_not_trusted(self, trust_here, resume_here, here, config, evil):
        """Two archives: the job of the second one has the first one's composed config."""
        given(here / "a", config)
        given(here / "a" / ".hydra", evil, name="config.yaml")
        b = sweep_of(here / "b", **{"0": evil})
        assert trust_here("a").code == 0
        assert_refused(resume_here("b"), here, "model._target_=os.system")
        shutil.copytree(here / "a", here / "c")
        assert not RunFolder(here / "c").is_own()
        assert not (b / "0" / "run.yaml").exists()

    @pytest.mark.parametrize("name", ["run.yaml", ".hydra/config.yaml", "code.diff", "provenance.json", "code/x.py"])
    def test_what_is_changed_afterwards_is_not_trusted(self, trust_here, here, config, name):
        run = RunFolder(given(here / "a", config))
        given(run.path / ".hydra", config, name="config.yaml")
        run.code_diff.write_bytes(b"diff --git")
        run.provenance.write_text(json.dumps({"commit": "a" * 40, "directory": "/a"}))
        run.code.mkdir()
        (run.code / "x.py").write_text("x = 1")

        def parts():
            provenance = json.loads(run.provenance.read_text())
            return {
                **{each: (run.path / each).read_bytes() for each in (RunFolder.COMPOSED, "code.diff", "code/x.py")},
                **{each: str(provenance[each]) for each in ("commit", "directory")},
            }

        assert not run.owns(**parts())
        assert trust_here("a").code == 0
        assert run.owns(**parts())
        text = (run.path / name).read_text()
        (run.path / name).write_text(text.replace("aaa", "bbb") if name == "provenance.json" else text + "\n# changed")
        assert not run.owns(**parts())

    def test_what_is_swapped_during_the_question_is_not_trusted(self, command_here, here, config, evil, monkeypatch):
        run = RunFolder(given(here / "a", config))

        def swapped(question):
            given(run.path, evil)
            return True

        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("manyheads.runner.commands.trust.is_confirmed", swapped)
        assert command_here("trust", "a").code == 0
        assert not RunFolder(run.path).is_own()
        given(run.path, config)
        assert RunFolder(run.path).is_own()

    def test_each_file_is_read_once(self, trust_here, here, config, evil, monkeypatch):
        """The bytes that are shown are those whose digests are stored."""
        from manyheads.runner.run.folder import Folder

        run, read = RunFolder(given(here / "a", config)), []
        before = Folder.read
        monkeypatch.setattr(Folder, "read", lambda *given, **more: read.append(given[1]) or before(*given, **more))
        trust_here("a")
        assert read.count(run.config.name) == 2  # in each of two commands


class TestWithoutATerminal:
    def test_the_digest_that_was_shown_is_named(self, command_here, here, config, evil):
        given(here / "a", config)
        done = command_here("trust", "a")
        found = re.search(r"digest (\w{16})", done.out)[1]
        assert_refused(done, here, f"{COMMANDS} trust a --yes {found}")
        given(here / "a", evil)
        assert_refused(command_here("trust", "a", "--yes", found), here, "is not the digest of what is shown above")
        assert not RunFolder(here / "a").is_own()
        given(here / "a", config)
        assert command_here("trust", "a", "--yes", found).code == 0
        assert RunFolder(here / "a").is_own()

    def test_it_is_that_folders(self, command_here, here, config):
        given(here / "a", config)
        given(here / "b", config)
        found = re.search(r"digest (\w{16})", command_here("trust", "a").out)[1]
        assert command_here("trust", "b", "--yes", found).code == 2


class TestOfAProject:
    @pytest.mark.parametrize("conf", ["..", "{}/elsewhere", "../elsewhere", "link", "link/deeper", ".", "nothing", ""])
    def test_its_configs_are_inside(self, command_here, here, conf):
        (here / "elsewhere" / "deeper").mkdir(parents=True)
        (here / "project").mkdir()
        (here / "project" / "link").symlink_to(here / "elsewhere")
        named = conf.format(here)
        (here / "project" / "pyproject.toml").write_text(f'[tool.manyheads]\nconf = "{named}"\n')
        assert_refused(command_here("trust", "project"), here, "is not a folder in the project")
        assert not any(seal.is_own_place(here / name) for name in (".", "project", "elsewhere"))

    def test_a_folder_of_that_name_that_is_a_link_is_none_of_its_own(self, here):
        (here / "elsewhere").mkdir()
        (here / "project").mkdir()
        (here / "project" / "conf").symlink_to(here)
        assert conf_of(here / "project") is None

    def test_one_that_is(self, here):
        (here / "project" / "src" / "conf").mkdir(parents=True)
        (here / "project" / "pyproject.toml").write_text('[tool.manyheads]\nconf = "src/conf"\n')
        assert conf_of(here / "project") == here / "project" / "src" / "conf"


class TestOfASearch:
    """The user published one: its files come back in somebody else's folder."""

    @pytest.fixture
    def published(self, here):
        folder = here / "published"
        Ledger(folder).create({}, arguments=["-m", "hydra/sweeper=search"], is_search=True)
        assert command_of(folder) is not None
        return folder

    def test_in_another_sweep_it_is_not_the_users(self, published, here, config):
        theirs = sweep_of(here / "theirs", **{"0": config})
        shutil.copy(published / seal.NAME, theirs)
        about = Ledger(published).about(Ledger(published).sealed_part()) | {"id": "theirs"}
        entries = Ledger(theirs).path.read_text().partition("\n")[2]
        Ledger(theirs).path.write_text(json.dumps(about) + "\n" + entries)
        assert command_of(theirs) is None

    def test_in_an_edited_one_neither(self, published):
        ledger = Ledger(published)
        ledger.path.write_text(ledger.path.read_text().replace("hydra/sweeper=search", "model._target_=os.system"))
        assert command_of(published) is None

    @pytest.mark.parametrize("folder", ["../mine", "{}/mine"])
    def test_no_run_elsewhere_is_run_again(self, published, here, config, folder):
        mine = RunFolder(here / "mine")
        mine.write_config(config)
        Ledger(published).write(Entry(0, folder.format(here), [], state="interrupted"))
        with pytest.raises(ConfigurationError, match="names a job outside it"):
            finish(Ledger(published), Ledger(published).entries(), NoPruning())
        assert not mine.logs.exists()

    def test_nothing_is_written_through_a_link(self, published, here):
        (here / "precious").write_text("mine")
        (published / "optimization_results.yaml").symlink_to(here / "precious")
        Ledger(published).write(Entry(0, "0", [], state="interrupted"))
        with pytest.raises(ConfigurationError, match="points outside"):
            finish(Ledger(published), Ledger(published).entries(), NoPruning())

    def test_no_job_that_somebody_changed_is_run(self, published, evil):
        given(published / "0", evil)
        Ledger(published).write(Entry(0, "0", [], state="interrupted"))
        with pytest.raises(ConfigurationError, match=r"model\._target_=os\.system"):
            finish(Ledger(published), Ledger(published).entries(), NoPruning())

    def test_somebody_elses_is_continued_once_it_is_trusted(self, trust_here, published, monkeypatch, here):
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "another"))
        given(published / "0", yaml.safe_load("seed: 1"))
        Ledger(published).write(Entry(0, "0", []))
        assert command_of(published) is None
        assert "resume would run: train -m hydra/sweeper=search" in trust_here("published").out
        assert command_of(published) is not None

    def test_a_command_that_would_replace_missing_jobs_is_shown(self, trust_here, here, config):
        """Without its jobs, the ledger of any sweep plans them again by its first line."""
        folder = sweep_of(here / "theirs", **{"0": config})
        lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
        first = json.dumps({"options": {}, "arguments": ["-m", "model._target_=os.system"]}) + "\n"
        (folder / "ledger.jsonl").write_text(first + "".join(lines[1:]))
        assert "resume would run: train -m model._target_=os.system" in trust_here("theirs").out

    def test_the_first_line_is_read_once(self, published, monkeypatch):
        """Somebody who writes to the folder replaces it between the check of the seal and the use."""
        read, evil = Ledger.sealed_part, '{"arguments": ["-m", "model._target_=os.system"]}\n'
        monkeypatch.setattr(
            Ledger, "sealed_part", lambda self: (part := read(self)) and self.path.write_text(evil) and part
        )
        assert "hydra/sweeper=search" in command_of(published)


def test_a_job_is_swapped_after_it_was_checked(here, config, evil):
    """What is frozen is what was read."""
    from manyheads.runner.trust.admit import admit_job

    folder = sweep_of(here / "sweep", **{"0": config})
    found, trust = admit_job(RunFolder(folder / "0"), folder)
    given(folder / "0" / ".hydra", evil, name="config.yaml")
    assert found["model"] == config["model"]
    assert trust is not None
    with pytest.raises(ConfigurationError, match=r"os\.system"):
        admit_job(RunFolder(folder / "0"), folder)
