"""The conf/ of the user's own project."""

from pathlib import Path

import pytest

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF, options
from manyheads.runner.config.own_folders import with_project
from manyheads.runner.config.project import own_project
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from tests.conftest import COMMANDS, ROOT

NET = "_target_: torch.nn.Linear\nname: mine\nnum_classes: null\npretrained: null\nin_features: 4\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project(folder: Path, *, conf: str = "conf") -> Path:
    (folder / conf / "model").mkdir(parents=True)
    (folder / conf / "model" / "mine.yaml").write_text(NET)
    return folder / conf


def test_it_counts_once_it_is_trusted(here, capsys):
    conf = project(here)
    line = CommandLine(("seed=1",))
    assert with_project(line) == with_project(line) == line  # as of a command that composes several configs
    assert capsys.readouterr().err == (
        f"conf was not read, since you have not marked it as your own. If it is yours, run once: {COMMANDS} trust .\n"
    )
    seal.trust(own_project(here), None)
    found = with_project(line)
    assert found.arguments == ("seed=1", "--config-dir", str(conf))
    assert "mine" in options("model", found.folders)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("--config-dir other", "--config-dir other hydra.searchpath=['file://{conf}']"),
        ("--config-dir=x hydra.searchpath=[y]", "--config-dir=x hydra.searchpath=[y,'file://{conf}']"),
        ("seed=1 --config-dir other", "--config-dir other seed=1 hydra.searchpath=['file://{conf}']"),
        ("-m seed=1,2", "-m seed=1,2 --config-dir {conf}"),
    ],
)
def test_beside_other_folders(here, typed, expected):
    conf = project(here)
    seal.trust(own_project(here), None)
    found = with_project(CommandLine(tuple(typed.split())))
    assert " ".join(found.arguments) == expected.format(conf=conf)
    assert [source.folder for source in found.sources()][-1] == conf


@pytest.mark.parametrize("typed", [("--config-dir", "conf"), ("hydra.searchpath=[conf]",), ("-cp", "{here}/conf")])
def test_one_that_is_named_is_not_named_twice(here, typed):
    project(here)
    seal.trust(own_project(here), None)
    line = CommandLine(tuple(each.format(here=here) for each in typed))
    assert with_project(line) == line


def test_the_checkouts_own_is_none(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert own_project(Path()) == CONF
    assert with_project(CommandLine(())) == CommandLine(())
    assert capsys.readouterr().err == ""


def test_nor_is_that_of_another_checkout(here, capsys):
    """As in a clone from which manyheads was installed."""
    project(here)
    (here / ".names" / "manyheads").mkdir(parents=True)
    seal.trust(own_project(here), None)
    assert with_project(CommandLine(())) == CommandLine(())
    assert capsys.readouterr().err == ""


def test_an_option_of_one_s_own_never_loses_to_one_of_ours_silently(here, run_here):
    conf = project(here)
    (conf / "model" / "resnet18.yaml").write_text(NET.replace("name: mine", "name: resnet18"))
    seal.trust(own_project(here), None)
    done = run_here("model=resnet18", cwd=here)
    assert done.code == 2
    assert f"hides {conf}/model/resnet18.yaml. Rename the file" in done.err


class TestPyproject:
    def test_says_where_it_is(self, here):
        conf = project(here, conf="my configs")
        (here / "pyproject.toml").write_text('[tool.manyheads]\nconf = "my configs"\n')
        assert own_project(here) == conf
        seal.trust(own_project(here), None)
        assert with_project(CommandLine(())).arguments == ("--config-dir", str(conf))

    def test_names_a_folder_that_is_not_there(self, here):
        (here / "pyproject.toml").write_text('[tool.manyheads]\nconf = "configs"\n')
        with pytest.raises(ConfigurationError, match=r"\[tool.manyheads\] conf = 'configs' is not a folder"):
            with_project(CommandLine(()))

    @pytest.mark.parametrize(
        "text",
        [
            "[",
            "tool = 1",
            "[tool]\nmanyheads = 1",
            "[tool.manyheads]\nconf = 1",
            "\x00",
            "a = " + "[" * 9999,
            "#" * 10**6 + "\n[tool.manyheads]\nconf = 'x'",
        ],
        ids=range(7),
    )
    def test_that_says_nothing_of_use(self, here, text):
        conf = project(here)
        (here / "pyproject.toml").write_text(text)
        assert own_project(here) == conf


def test_its_options_are_chosen_checked_and_listed(run_here, here):
    project(here)
    (here / "conf" / "experiment").mkdir()
    (here / "conf" / "experiment" / "small.yaml").write_text("# @package _global_\nseed: 7\n")
    seal.trust(own_project(here), None)
    done = run_here("--cfg", "job", "model=mine", "experiment=small", cwd=here)
    assert done.code == 0, done.err
    assert "in_features: 4" in done.out
    assert "seed: 7" in done.out
    assert "model.in_featurs" in (done := run_here("model=mine", "model.in_featurs=3", cwd=here)).err
    assert "model.in_features" in done.err
    help_text = run_here("--help", cwd=here).out
    assert "small" in help_text.partition("\nexperiment:")[2].partition("\n")[0]
    assert "mine" in help_text.partition("\nmodel:")[2].partition("\n")[0]
