"""Files of the user's own, typed as options."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.typed_files import offer_files
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, RUN, execute

NET = """
import torch
from my_widths import WIDTH

class Net(torch.nn.Module):
    def __init__(self, num_classes, width=WIDTH):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, num_classes)

    def forward(self, images):
        return self.layer(images.flatten(1))

class Strict(Net):
    def __init__(self, num_classes, depth):
        super().__init__(num_classes)
"""
DATA = """
import torch

class Shapes:
    num_classes = 2

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((3, 8, 8), index / 64), index % 2
"""
OWN = tuple(each for each in FAST if "width" not in each)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(NET)
    (tmp_path / "my_widths.py").write_text("WIDTH = 3\n")
    (tmp_path / "my_data.py").write_text(DATA)
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir" / "my_net.py").write_text(NET)
    return tmp_path


def offered(*overrides: str) -> tuple[tuple[str, ...], dict[str, str]]:
    line, own = offer_files(CommandLine(overrides))
    return line.arguments, dict(own)


class TestWhatIsTyped:
    @pytest.mark.parametrize(
        ("typed", "as_hydra_has_it"),
        [
            ("model=my_net.py:Net", "model=my_net.py:Net"),
            ("my_net.py:Net", "model=my_net.py:Net"),
            ("./my_net.py:Net", "model=my_net.py:Net"),
            ("model=../{name}/my_net.py:Net,resnet18", "model=my_net.py:Net,resnet18"),
            ("my dir/my_net.py:Net", "model=my_net.py:Net"),
            ("model=my dir/my_net.py:Net, resnet18", "model=my_net.py:Net, resnet18"),
            ("model=choice('{here}/my_net.py:Net',resnet18)", "model=choice(my_net.py:Net,resnet18)"),
        ],
    )
    def test_becomes_an_option(self, here, typed, as_hydra_has_it):
        found, own = offered("-m", typed.format(here=here, name=here.name), "seed=1")
        assert found == ("-m", as_hydra_has_it, "seed=1")
        folder = here / "my dir" if "my dir" in typed else here
        assert own == {"model._target_": f"{folder}/my_net.py:Net"}

    def test_becomes_the_value_of_a_target(self, here):
        found, own = offered("+metrics.mine._target_=my_net.py:Net")
        assert found == (f"+metrics.mine._target_='{here}/my_net.py:Net'",)
        assert own == {}

    @pytest.mark.parametrize("typed", ["data.root=my_net.py:Net", "parallel=my_net.py:Net", "seed=1", "+x=a.py:b"])
    def test_is_left_alone_elsewhere(self, here, typed):
        assert offered(typed) == ((typed,), {})

    def test_files_of_one_name_are_told_apart(self, here):
        for folder in ("one", "two"):
            (here / folder).mkdir()
            (here / folder / "net.py").write_text("class Net: pass\n")
        found, own = offered("model=one/net.py:Net,two/net.py:Net")
        assert found == ("model=net.py:Net,two.net.py:Net",)
        assert set(own.values()) == {f"{here}/two/net.py:Net"}

    @pytest.mark.parametrize(
        ("typed", "message"),
        [
            ("model=my_nett.py:Net", "there is no file my_nett.py. Did you mean my_net.py"),
            ("model=nowhere/my_net.py:Net", "there is no file nowhere/my_net.py."),
            ("model=my_net.py:Nett", "my_net.py has no Nett. Did you mean Net? It defines Net, Strict."),
            ("model=broken.py:Net", "broken.py is not valid Python in line 2"),
            ("model=folder.py:Net", "folder.py cannot be read"),
        ],
    )
    def test_errors(self, here, typed, message):
        (here / "broken.py").write_text("class Net: pass\nclass\n")
        (here / "folder.py").mkdir()
        with pytest.raises(ConfigurationError) as error:
            offered(typed)
        assert str(error.value).startswith(f"{typed}: ")
        assert message in str(error.value)

    @pytest.mark.parametrize(
        "text",
        [
            "try:\n    from torch.nn import Identity as Net\nexcept ImportError:\n    Net = None\n",
            "from torch.nn import *\n",
            "def __getattr__(name): ...\n",
            "def Net(): ...\n",
            "Net: type = int\n",
            "if True:\n    class Net: pass\n",
        ],
    )
    def test_ways_to_define_a_name(self, here, text):
        (here / "other.py").write_text(text)
        assert offered("model=other.py:Net")[1] == {"model._target_": f"{here}/other.py:Net"}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep over a file of the user's own and one of this project's options, in a folder of its own."""
    here = tmp_path_factory.mktemp("swept")
    for name, content in (("my_net", NET), ("my_widths", "WIDTH = 3\n"), ("my_data", DATA)):
        (here / f"{name}.py").write_text(content)
    arguments = ("-m", *OWN, "model=my_net.py:Net,small_cnn", "data=my_data.py:Shapes", "parallel=ddp")
    done = execute(sys.executable, str(RUN), *arguments, "hydra.sweep.dir=sweep", cwd=here)
    assert done.code == 0, done.out + done.err
    return here / "sweep"


def test_a_sweep_over_it(swept):
    configs = [RunFolder(swept / job).read_config() for job in "01"]
    assert configs[0]["model"]["_target_"] == f"{swept.parent}/my_net.py:Net"
    assert [config["model"]["name"] for config in configs] == ["Net", "small_cnn"]
    assert {config["data"]["_target_"] for config in configs} == {f"{swept.parent}/my_data.py:Shapes"}


def test_it_is_recorded_with_its_digest_and_a_copy(swept):
    folder, path = RunFolder(swept / "0"), swept.parent / "my_net.py"
    recorded = json.loads(folder.provenance.read_text())["own_code"]
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True).stdout.split()[0]
    assert recorded[str(path)] == digest
    assert (folder.code / path.relative_to("/")).read_text() == NET
    assert folder.owns(**{f"code{path}": NET})


def test_one_in_this_process(run_here, here):
    """With keys of its own; the bare file is a model."""
    done = run_here("my_net.py:Net", "+model.width=5", "data=synthetic", "data.image_size=8", *OWN, "hydra.run.dir=run")
    assert done.code == 0, done.err
    config = yaml.safe_load((here / "run" / "run.yaml").read_text())
    assert config["model"] == {
        "_target_": f"{here}/my_net.py:Net",
        "name": "Net",
        "num_classes": None,
        "pretrained": None,
        "width": 5,
    }


def test_one_whose_class_is_replaced_is_refused(run_here, here):
    """As by an experiment's own class, which Hydra sets over the option that was typed."""
    words = ("model=my_net.py:Net", "model._target_=my_net.py:Strict", "data=synthetic", "data.image_size=8", *OWN)
    done = run_here(*words)
    assert done.code == 2
    assert f"model._target_={here}/my_net.py:Strict, set by an experiment or typed, would replace it." in done.err
    assert f"Set model._target_={here}/my_net.py:Net instead" in done.err


def test_a_class_that_wants_more(run_here, here):
    done = run_here("model=my_net.py:Strict", "data=synthetic", "data.image_size=8", *OWN)
    assert done.code == 2
    assert "missing a required argument: 'depth'. Set them under model." in done.err
    assert not list(Path("outputs").rglob("checkpoints/*"))


@pytest.mark.tail
@pytest.mark.processes
def test_parity_of_it(here):
    words = ("parity", "my_net.py:Net", "data=my_data.py:Shapes", *OWN[1:], "parallel=ddp", "--steps", "1")
    done = execute(sys.executable, "-m", "manyheads.runner", *words, cwd=here)
    assert done.code == 0, done.err
