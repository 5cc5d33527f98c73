"""``manyheads init``: what it finds in a repository without running it, and the experiment that it writes."""

import argparse
import json
import sys
from io import StringIO
from pathlib import Path
from unittest.mock import ANY

import pytest
import yaml

from manyheads.runner.commands import init
from manyheads.runner.commands.init.draft_experiment import Draft, draft, find
from manyheads.runner.commands.init.repository import explore
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import is_own_place
from tests.conftest import FAST, RUN, execute

NET = """
import dataclasses
from dataclasses import dataclass
import torch.nn as nn
raise SystemExit("a file that is found is not run")

@dataclass
class NetConfig:
    width: int
    depth: int = 2

class Layer(nn.Module):
    def __init__(self, width): ...

class Base(nn.Module): ...

class Net(Base):
    def __init__(self, config, num_classes=10, *, rate, dropout=0.1):
        self.layer = Layer(3)

    def forward(self, x, targets=None): ...
"""
TRAIN = """
from data import Images
from net import Net, NetConfig
model = Net(NetConfig(width=8), rate=0.5, dropout=0.2)
data = Images("photos", train=True)
model(data[0]).backward()
"""
DATA = """
class Images:
    def __init__(self, root, train, size=8): ...
    def __len__(self): ...
    def __getitem__(self, index): ...
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    files = {"net.py": NET, "train.py": TRAIN, "data.py": DATA, "broken.py": "def", "tests/test_net.py": "x = 1"}
    files["venv/pyvenv.cfg"] = ""
    files["venv/other.py"] = "import torch\nclass Hidden(torch.nn.Module): ..."
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "linked.py").symlink_to("/etc/passwd")
    return tmp_path


def drafted_for(folder: Path, **chosen: str) -> Draft:
    return draft(find(folder), **chosen)


def test_what_is_found(repository):
    found = explore(repository)
    assert [each.name for each in found.models] == ["Net", "Base", "Layer"]  # as used in scripts, alone, within others
    assert [each.name for each in found.data_sets] == ["Images"]
    assert [each.name for each in found.scripts] == ["train.py"]
    net = found.models[0]
    assert (net.arguments, net.required) == (["config", "num_classes", "rate", "dropout"], ["config", "rate"])
    assert net.given == {"rate": 0.5, "dropout": 0.2}
    assert net.has_own_loss


def test_the_experiment(repository):
    drafted = drafted_for(repository, model="net.py:Net")
    (experiment, text), (module, function), (schema, _) = drafted.files.items()
    assert experiment == repository / "conf/experiment/net.yaml"
    assert text.startswith("# @package _global_\n")
    config = yaml.safe_load(text)
    assert config["model"] == {
        "_target_": "net.py:Net",
        "config": {"_target_": "net.py:NetConfig", "width": 8},
        "rate": 0.5,
        "dropout": 0.2,
    }
    assert config["data"] == {"_target_": "manyheads_data.py:data", "root": "photos", "batch_size": 64}
    assert {"override /task": "own_loss"} in config["defaults"]
    assert (module, schema) == (repository / "manyheads_data.py", repository / "conf/schema.json")
    assert 'return Images(**options, train=split == "train")' in function
    assert "raise ValueError(split)" in function
    assert drafted.notes == (
        "Read from train.py, which was not run.",
        "data.batch_size: the script sets none that was understood; 64 is a guess.",
        "No optimizer of torch was found: set optimizer=, which is sgd by default.",
        "trainer.epochs: the script was not understood; 10 is a guess.",
    )
    assert all(f"# {note}" in text for note in drafted.notes)
    assert not experiment.exists()


SGD = {"momentum": 0, "weight_decay": 0}
OPTIMIZERS = {
    "torch.optim.SGD(p, lr=0.1)\ntorch.optim.lr_scheduler.StepLR(o, 1)": ("sgd", {**SGD, "lr": 0.1}, None),
    "import torch.optim as optim\noptim.SGD(p, 0.01, momentum=0.9)\noptim.step()\noptim.zero_grad()": (
        *("sgd", {**SGD, "lr": 0.01, "momentum": 0.9}, None),
    ),
    "from torch import optim\noptim.AdamW(p, lr=3e-4, betas=(0.9, 0.95))": (
        *("adamw", {"lr": 3e-4, "betas": [0.9, 0.95]}, None),
    ),
    "from torch.optim import SGD as S\nS(p, lr=0.1)\nown.Adam(p)": ("sgd", {**SGD, "lr": 0.1}, None),
    "torch.optim.RMSprop(p, lr=0.1, alpha=0.9)": (
        *("custom", {"_target_": "torch.optim.RMSprop", "lr": 0.1, "alpha": 0.9}, None),
    ),
    "torch.optim.Adam(p)": ("adam", None, "leaves the learning rate of Adam at torch's default: set optimizer.lr"),
    "torch.optim.Adam(p, lr=args.lr, eps=1e-6)": ("adam", {"eps": 1e-6}, "computes its optimizer's lr (args.lr)"),
    "torch.optim.Adam(p, lr=0.1)\ntorch.optim.Adam(q, lr=0.2)": ("adam", None, "with different arguments"),
    "torch.optim.SGD(p) if plain else torch.optim.Adam(p)": (None, None, "chooses its optimizer (Adam, SGD)"),
    "optim.step()": (None, None, "No optimizer of torch was found: set optimizer=, which is sgd by default"),
}


@pytest.mark.parametrize("lines", OPTIMIZERS)
def test_the_optimizer_is_read_or_left_out_with_a_note(repository, lines):
    option, keys, note = OPTIMIZERS[lines]
    (repository / "train.py").write_text(f"{TRAIN}{lines}\n")
    drafted = drafted_for(repository, model="net.py:Net")
    config = yaml.safe_load(next(iter(drafted.files.values())))
    chosen = [each["override /optimizer"] for each in config["defaults"] if "override /optimizer" in each]
    assert chosen == [option] * (option is not None)
    assert config.get("optimizer") == keys
    notes = [text for text in drafted.notes if "optim" in text]
    assert notes == ([] if note is None else [ANY])
    assert note is None or note in notes[0]


def test_a_data_set_without_splits_is_noted(repository):
    (repository / "data.py").write_text(DATA.replace("train, ", ""))
    drafted = drafted_for(repository, model="net.py:Net")
    assert any(each.startswith("Every split has all samples") for each in drafted.notes)
    assert "# TODO" in drafted.files[repository / "manyheads_data.py"]


def test_what_is_wrong_is_said(repository, tmp_path_factory):
    with pytest.raises(ConfigurationError, match="no terminal to ask on. Choose with --model"):
        drafted_for(repository)
    with pytest.raises(ConfigurationError, match=r"no such class. Did you mean net.py:Net"):
        drafted_for(repository, model="net.py:Nett")
    with pytest.raises(ConfigurationError, match="defines a torch.nn.Module"):
        drafted_for(tmp_path_factory.mktemp("empty"))
    (repository / "conf/experiment").mkdir(parents=True)
    (repository / "conf/experiment/net.yaml").touch()
    with pytest.raises(ConfigurationError, match="already exists"):
        drafted_for(repository, model="net.py:Net")


def test_ctrl_d_chooses_nothing(repository, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    with pytest.raises(ConfigurationError, match="nothing was chosen. Choose with --model"):
        drafted_for(repository)


def test_what_is_still_to_be_done_is_noted(repository):
    (repository / "net.py").write_text(NET.replace("class Layer", "parser.parse_args()\nclass Layer"))
    (repository / "train.py").unlink()
    notes = drafted_for(repository, model="net.py:Net", data="none").notes
    assert notes[0] == "No training script was found: these settings are not those of the repository."
    assert notes[1].startswith("Choose the data")
    assert notes[2].startswith("Importing net.py runs its script: move Net to another file")
    assert notes[3] == "Replace ???: model.config.width, model.rate."


@pytest.mark.processes
def test_its_experiment_trains_once_it_is_trusted(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self, num_classes):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(192, num_classes)\n"
        "    def forward(self, images):\n        return self.layer(images.flatten(1))\n"
    )
    own = [sys.executable, "-m", "manyheads.runner"]
    done = execute(*own, "init", "--yes", "--data", "none", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)["result"]
    assert "experiment=net" in found["commands"][0]
    assert found["notes"][-1].startswith("The experiment is not read until you trust its folder")
    assert not is_own_place(tmp_path / "conf")
    words = ("experiment=net", "data=synthetic", "data.image_size=8", "hydra.run.dir=run")
    overrides = [each for each in FAST if "width" not in each]
    done = execute(sys.executable, str(RUN), *words, *overrides, cwd=tmp_path)
    assert done.code == 2, done.out
    assert "trust" in done.err
    digest = execute(*own, "trust", ".", cwd=tmp_path).out.split()[-1]
    assert execute(*own, "trust", ".", "--yes", digest, cwd=tmp_path).code == 0
    done = execute(sys.executable, str(RUN), *words, *overrides, cwd=tmp_path)
    assert done.code == 0, done.err
    assert RunFolder(tmp_path / "run").read_result()["status"] == "completed"


@pytest.mark.parametrize("link", ["conf", "conf/experiment"])
def test_nothing_is_written_through_a_link(repository, tmp_path_factory, link):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (repository / link).parent.mkdir(exist_ok=True)
    (repository / link).symlink_to(elsewhere)
    arguments = argparse.Namespace(
        folder=str(repository), script=None, model="net.py:Net", data="data.py:Images", yes=True
    )
    with pytest.raises(ConfigurationError, match="link"):
        init.run(arguments)
    assert not [*elsewhere.iterdir()]
