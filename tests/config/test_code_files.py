"""Classes in files, named in a project's configs."""

import shutil
from functools import partial

import pytest
import yaml

from manyheads.runner.config.code_files import absolute
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import read
from manyheads.runner.config.typed_files import offer_files
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.tree import with_targets
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import project_of
from manyheads.runner.trust.look import look
from tests.config.test_typed_files import DATA, NET, OWN

MINE = """
# @package _global_
defaults:
  - override /model: custom
  - override /data: custom
model: {_target_: code/my_net.py:Net, width: 5}
data: {_target_: my_data.py:Shapes}
callbacks: {seen: {_target_: my_callback.py:Seen, inner: [{_target_: my_callback.py:Inner}]}}
"""
CALLBACK = """
from pathlib import Path
from manyheads.runner.callbacks.callback import Callback

class Inner: pass

class Seen(Callback):
    def __init__(self, inner):
        Path("seen").write_text(type(inner[0]).__name__)
"""
OPTION = "_target_: code/my_net.py:Net\nname: mine\nnum_classes: null\npretrained: null\nwidth: 4\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A trusted project, in which runs are started."""
    monkeypatch.chdir(tmp_path)
    files = {
        "code/my_net.py": NET,
        "code/my_widths.py": "WIDTH = 3\n",
        "my_data.py": DATA,
        "my_callback.py": CALLBACK,
        "conf/experiment/mine.yaml": MINE,
        "conf/model/mine.yaml": OPTION,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    seal.trust(tmp_path / "conf", None)
    return tmp_path


def test_any_target_of_an_experiment(run_here, project):
    (project / "conf/model/mine.yaml").unlink()
    done = run_here("experiment=mine", *OWN, "hydra.run.dir=run")
    assert done.code == 0, done.err
    folder = RunFolder(project / "run")
    config = folder.read_config()
    assert config["model"]["_target_"] == f"{project}/code/my_net.py:Net"
    assert config["data"]["_target_"] == f"{project}/my_data.py:Shapes"
    assert config["callbacks"]["seen"]["inner"][0]["_target_"] == f"{project}/my_callback.py:Inner"
    assert (project / "seen").read_text() == "Inner"
    for name, content in (("code/my_net.py", NET), ("my_data.py", DATA), ("my_callback.py", CALLBACK)):
        copy = folder.code / (project / name).relative_to("/")
        assert copy.read_text() == content
        assert folder.owns(**{f"code{project / name}": content})


def test_an_option_keeps_its_keys(run_here, project):
    """Also when it is composed again from the run's config, where the file has its absolute path."""
    assert run_here("model=mine", "data=synthetic", "data.image_size=8", *OWN, "hydra.run.dir=run").code == 0
    again = ("--config-path", str(project / "run"), "--config-name", "run")
    done = run_here(*again, "+model.wide=3")
    assert done.code == 2
    assert "model.wide is not a key of the run config. Did you mean model.width" in done.err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{_target_: nett.py:Net}", "there is no file {project}/nett.py."),
        ("{_target_: code/my_net.py:Nett}", "has no Nett. Did you mean Net? It defines Net, Strict."),
        ("{_target_: code/my_net.py:Strict, name: small_cnn, width: 3}", "is set over model=small_cnn"),
    ],
)
def test_what_is_wrong_is_known_before_there_is_a_run(run_here, project, model, message):
    (project / "conf/experiment/bad.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /model: custom\nmodel: {model}\n"
    )
    done = run_here("experiment=bad", "data=synthetic", "data.image_size=8", *OWN)
    assert done.code == 2
    assert message.format(project=project) in done.err
    assert not list(project.glob("outputs/**/run.yaml"))


def test_a_run_that_its_rank_refuses_leaves_nothing(run_here, project):
    """And its folder can be used again."""
    typed = ("model=mine", "data=synthetic", "data.image_size=8", *OWN, "hydra.run.dir=run")
    (project / "conf/model/mine.yaml").write_text(OPTION.replace("width: 4", "widht: 4"))
    done = run_here(*typed)
    assert done.code == 2
    assert "unexpected keyword argument 'widht'. Did you mean width?" in done.err
    assert not (project / "run").exists()
    (project / "conf/model/mine.yaml").write_text(OPTION)
    read.cache_clear()
    assert run_here(*typed).code == 0


def test_nothing_of_an_untrusted_project(run_here, project):
    stranger = project.with_name(f"{project.name}-stranger")
    shutil.copytree(project, stranger)
    assert run_here("experiment=mine", *OWN, cwd=stranger).code == 2
    assert run_here("experiment=mine", "--config-dir", "conf", *OWN, cwd=stranger).code == 2
    assert not list(stranger.glob("outputs/**/run.yaml"))
    assert not (stranger / "seen").exists()


@pytest.mark.parametrize("trust", [(), ("trust=my_callback",), ("trust=my_net",)])
def test_a_stranger_cannot_name_a_file_of_a_trusted_project(run_here, project, trust):
    assert run_here("data=digits", *OWN, "hydra.run.dir=run").code == 0
    theirs = yaml.safe_load((project / "run/run.yaml").read_text())
    theirs["callbacks"] = {"seen": {"_target_": "my_callback.py:Seen", "inner": []}}
    (project / "theirs").mkdir()
    (project / "theirs/run.yaml").write_text(yaml.safe_dump(theirs))
    done = run_here("--config-path", str(project / "theirs"), "--config-name", "run", *trust)
    assert done.code == 2
    assert "callbacks.seen._target_=" in done.err
    assert not (project / "seen").exists()


class TestTyped:
    def test_in_a_mapping(self, project):
        line, _ = offer_files(CommandLine(("+metrics.mine={_target_: my_data.py:Shapes, split: 1}",)))
        assert line.arguments == (f"+metrics.mine={{_target_: '{project}/my_data.py:Shapes', split: 1}}",)

    def test_in_a_list(self, project):
        line, _ = offer_files(CommandLine(("data.transform=[{_target_: 'my_data.py:Shapes'}]",)))
        assert line.arguments == (f"data.transform=[{{_target_: '{project}/my_data.py:Shapes'}}]",)

    def test_below_a_key_that_is_null(self, project):
        line, _ = offer_files(CommandLine(("data.tokenizer._target_=my_data.py:Shapes", "data.a._target_=b.C")))
        assert line.arguments == (f"++data.tokenizer._target_='{project}/my_data.py:Shapes'", "++data.a._target_=b.C")


class TestProjects:
    def test_parent_of_the_configs(self, tmp_path):
        assert project_of(tmp_path / "configs") == tmp_path

    def test_where_pyproject_names_the_configs(self, tmp_path):
        (tmp_path / "src/conf").mkdir(parents=True)
        (tmp_path / "pyproject.toml").write_text('[tool.manyheads]\nconf = "src/conf"\n')
        assert project_of(tmp_path / "src/conf") == tmp_path / "src"
        for looked_at in look(tmp_path):
            looked_at.trust()
        assert project_of(tmp_path / "src/conf") == tmp_path

    def test_a_pyproject_above_a_trusted_project_changes_nothing(self, tmp_path):
        """In /tmp, for example, where anybody can write one."""
        project = tmp_path / "me/project"
        (project / "conf").mkdir(parents=True)
        for looked_at in look(project):
            looked_at.trust()
        (tmp_path / "pyproject.toml").write_text('[tool.manyheads]\nconf = "me/project/conf"\n')
        assert project_of(project / "conf") == project

    def test_file_that_two_have(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "net.py").touch()
        config = {"model": {"_target_": "net.py:Net"}}
        assert with_targets(config, partial(absolute, projects=[tmp_path / "a"])) == {
            "model": {"_target_": f"{tmp_path}/a/net.py:Net"}
        }
        with pytest.raises(ConfigurationError, match=r"^model._target_=net.py:Net could be .*a/net.py or .*b/net.py"):
            absolute("model._target_", "net.py:Net", projects=[tmp_path / "a", tmp_path / "b"])

    @pytest.mark.parametrize("value", ["/a/net.py:Net", "my_package.Net", "net.py", "net.py:", ".py:Net"])
    def test_anything_else_is_unchanged(self, tmp_path, value):
        assert absolute("_target_", value, projects=[tmp_path]) == value
        assert with_targets({"root": "net.py:Net"}, partial(absolute, projects=[tmp_path])) == {"root": "net.py:Net"}
