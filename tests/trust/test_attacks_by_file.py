"""Files of Python that somebody's config names by their paths, beside files that the user types."""

import importlib.util
import json
import os
import py_compile
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.ownership import is_mine
from manyheads.runner.option.locate import STARTED_IN, own_folders
from manyheads.runner.option.source_file import SourceFile
from manyheads.runner.provenance.copies import copies
from manyheads.runner.provenance.kept_files import snapshot
from manyheads.runner.provenance.started_in import find_where_started
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST
from tests.tail import each_once
from tests.trust.foreign import OWN, assert_refused, given

pytestmark = pytest.mark.ci

RUN = tuple(o for o in FAST if "width" not in o)


@pytest.fixture
def evil(here):
    """A file that leaves a mark if it is imported."""
    (here / "theirs").mkdir()
    (here / "theirs" / "evil.py").write_text(OWN)
    return here / "theirs" / "evil.py"


def model(path) -> dict:
    return {"model": {"_target_": f"{path}:Net", "name": "custom", "num_classes": None, "pretrained": None}}


@pytest.mark.parametrize(
    ("key", "way"),
    each_once(
        ["model", "loss", "data", "metrics.x", "callbacks.x", "model._option_"],
        ["--config-path", "resume", "reproduce"],
    ),
)
def test_a_run_that_names_one(run_here, command_here, here, evil, config, way, key):
    group, _, name = key.partition(".")
    section = {"_target_": f"{evil}:Net", "name": "x"}
    change = {group: {name: section}} if name == "x" else {group: section}
    if name == "_option_":
        change = {group: {**config[group], name: f"{evil}:Net"}}
    given(evil.parent, config | change)
    saved = ("--config-path", str(evil.parent), "--config-name", "run")
    if way == "reproduce":
        (evil.parent / "result.json").write_text("{}")
    done = run_here(*saved) if way == "--config-path" else command_here(way, "theirs")
    assert_refused(done, here, *([] if way == "reproduce" else [f"{evil}:Net", "You can name a file of your own"]))


@pytest.mark.parametrize("target", ["evil.py:Net", "theirs/evil.py:Net", "/x/../{here}/theirs/evil.py:Net"])
@pytest.mark.parametrize("trust", ["", "trust=[evil]", "trust=[theirs]"])
def test_a_path_that_is_none(resume_here, here, evil, config, target, trust):
    """Not even a trusted package makes a file of what is no path from the root."""
    given(evil.parent, config | model("x") | {"model": {**model("x")["model"], "_target_": target.format(here=here)}})
    assert_refused(resume_here("theirs", *filter(None, [trust])), here)


@pytest.mark.parametrize("way", ["model/x.yaml", "experiment/x.yaml"])
def test_a_folder_of_configs_that_names_one(run_here, here, evil, way):
    path = evil.parent / way
    path.parent.mkdir()
    section = model(evil)["model"] if way.startswith("model") else model(evil)
    header = "" if way.startswith("model") else "# @package _global_\n"
    path.write_text(header + yaml.safe_dump(section))
    done = run_here("--config-dir", str(evil.parent), f"{way.partition('/')[0]}=x")
    assert_refused(done, here, "configs that are composed can run any code")


def test_what_the_user_types_beside_theirs_is_his(run_here, here, evil, config):
    """And nothing else of theirs is."""
    (here / "mine.py").write_text(OWN)
    given(evil.parent, config | {"loss": {"_target_": f"{evil}:make"}})
    typed = ("--config-path", str(evil.parent), "--config-name", "run", "model=mine.py:Net", *RUN)
    assert_refused(run_here(*typed), here, f"loss._target_={evil}:make")
    given(evil.parent, config)
    done = run_here(*typed, "hydra.run.dir=run", "data=synthetic", "data.image_size=32")
    assert done.code == 0, done.err


def test_a_config_that_would_take_the_typed_files_place(run_here, here, evil):
    (here / "mine.py").write_text(OWN)
    (evil.parent / "model").mkdir()
    (evil.parent / "model" / "mine.py:Net.yaml").write_text("_target_: torch.nn.Linear\n")
    done = run_here("--config-dir", str(evil.parent), "model=mine.py:Net")
    assert_refused(done, here, "model=mine.py:Net is also a config in")


def test_an_untrusted_conf_in_the_working_directory_is_not_read(run_here, here, evil):
    (here / "conf" / "experiment").mkdir(parents=True)
    text = yaml.safe_dump(model(evil) | {"hydra": {"callbacks": {"x": {"_target_": "my_package.make"}}}})
    (here / "conf" / "experiment" / "digits_quick.yaml").write_text("# @package _global_\n" + text)
    (here / "conf" / "experiment" / "x.yaml").write_text("# @package _global_\n" + text)
    done = run_here("experiment=x")
    assert done.code == 2
    assert "experiment=x: there is no such option. conf/experiment/x.yaml was not read" in done.err
    assert done.err.startswith("conf was not read, since you have not marked it as your own")
    assert not (here / "imported").exists()


class TestCopies:
    """Of a run that the user recorded with a file of his own."""

    @pytest.fixture
    def past(self, run_here, here):
        (here / "mine.py").write_text(OWN.replace("imported", "first"))
        overrides = ("model=mine.py:Net", "data=synthetic", "data.image_size=32", *RUN, "hydra.run.dir=past")
        done = run_here(*overrides)
        assert done.code == 0, done.err
        return RunFolder(here / "past")

    def test_one_that_was_edited_is_not_run(self, past, command_here, here):
        copy = past.code / str(here / "mine.py").lstrip("/")
        copy.write_text(copy.read_text() + "\npathlib.Path('mark').touch()\n")
        (here / "mine.py").unlink()
        done = command_here("reproduce", "past")
        assert done.code == 2
        assert "is missing or not yours" in done.err
        assert not (here / "mark").exists()

    @pytest.mark.parametrize("planted", ["pathlib.py", "torch.abi3.so"])
    def test_one_beside_which_somebody_put_what_it_imports_is_not_run(self, past, command_here, here, planted):
        path = (past.code / str(here / "mine.py").lstrip("/")).with_name(planted)
        path.write_text("import os\nos.mkdir('mark')\n")
        (here / "mine.py").unlink()
        done = command_here("reproduce", "past")
        assert done.code == 2
        assert "is missing or not yours" in done.err
        assert not (here / "mark").exists()

    @pytest.mark.parametrize("planted", ["apex.pyc", "apex"])
    def test_nor_what_it_looks_for_and_does_not_find(self, past, here, planted):
        path = (past.code / str(here / "mine.py").lstrip("/")).with_name(planted)
        path.write_bytes(b"") if path.suffix else path.symlink_to(past.path / "logs")
        assert snapshot(past) is None

    def test_bytecode_beside_one_is_not_run(self, past, here, monkeypatch):
        """It can claim to fit any source file."""
        monkeypatch.setattr(sys, "pycache_prefix", None)
        monkeypatch.setattr(sys, "path", [*sys.path])
        copy = past.code / str(here / "mine.py").lstrip("/")
        (here / "evil.py").write_text("import os\nos.mkdir('mark')\nclass Net: pass\n")
        planted, anyway = importlib.util.cache_from_source(str(copy)), py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(here / "evil.py"), planted, invalidation_mode=anyway)
        monkeypatch.chdir(here)
        assert SourceFile(copy, "Net").load().__mro__[1] is torch.nn.Sequential
        assert not (here / "mark").exists()
        assert (snapshot(past) / str(here / "mine.py").lstrip("/")).is_file()

    def test_one_of_another_run_of_his_own_is_not_run(self, past, run_here, command_here, here):
        """Though his key has sealed it."""
        copy = past.code / str(here / "mine.py").lstrip("/")
        shutil.copytree(past.path, here / "other")
        RunFolder(here / "other").write_config({**past.read_config(), "seed": 2})
        other = RunFolder(here / "other").code / copy.relative_to(past.code)
        assert other.read_bytes() == copy.read_bytes()
        assert (snapshot(past) / str(here / "mine.py").lstrip("/")).is_file()
        assert snapshot(RunFolder(here / "other")) is None

    def test_a_directory_that_was_written_into_the_record_is_not_looked_at(self, past, here, monkeypatch):
        monkeypatch.delenv(STARTED_IN, raising=False)
        record = json.loads(past.provenance.read_text())
        past.provenance.write_text(json.dumps({**record, "directory": str(here / "state")}))
        find_where_started(past)
        assert own_folders() == []  # nor the working directory
        past.provenance.write_text(json.dumps(record))
        find_where_started(past)
        assert os.environ.pop(STARTED_IN) == str(here)

    def test_of_somebody_elses_run_it_is_run_only_once_that_is_trusted(
        self, past, command_here, trust_here, here, monkeypatch
    ):
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "another"))  # with another key, or none
        (here / "mine.py").unlink()
        copy = past.code / str(here / "mine.py").lstrip("/")
        done = command_here("reproduce", "past")
        assert done.code == 2
        assert f"model._target_={here}/mine.py:Net" in done.err
        done = trust_here("past")
        assert f"reproduce would use {copy}" in done.out
        file, _, name = copies(past, past.read_config())["model._target_"].rpartition(":")
        assert (Path(file).read_bytes(), name) == (copy.read_bytes(), "Net")
        assert is_mine(Path(file))
        copy.write_bytes(copy.read_bytes() + b"#")
        with pytest.raises(ConfigurationError, match="is missing or not yours"):
            copies(past, past.read_config())
