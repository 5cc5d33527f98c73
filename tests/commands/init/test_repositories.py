"""Shapes of repositories: where classes are, how scripts set things up, and what the draft says of what is missing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from manyheads.runner.commands.init.draft_experiment import Draft, draft, find
from manyheads.runner.errors import ConfigurationError

NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self, width, depth=1): ...
    def forward(self, x): ...
"""
SCRIPT = """
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=7)
args = parser.parse_args()

torch.manual_seed(3)
loader = DataLoader(samples, batch_size=args.batch_size, shuffle=True)
model = Net(args.width)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
LOOP = "        loss = criterion(model(x), y)\n"


def drafted(folder: Path, files: dict[str, str], **chosen: str) -> tuple[Draft, dict, str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf/schema.json").touch()  # otherwise written anew each time
    draft_of_it = draft(find(folder), **chosen)
    text = next(iter(draft_of_it.files.values()))
    return draft_of_it, yaml.safe_load(text), text


def options(config: dict) -> dict[str, str]:
    return {key.removeprefix("override /"): value for entry in config["defaults"] for key, value in entry.items()}


def test_the_settings_of_a_script_reach_the_draft(tmp_path):
    drafted_for_it, config, _ = drafted(tmp_path, {"net.py": NET, "train.py": SCRIPT})
    assert config["model"] == {"_target_": "net.py:Net", "width": 16}
    assert config["data"] == {"batch_size": 32, "drop_last": False}
    assert config["optimizer"] == {"lr": 0.003}
    assert config["trainer"] == {"epochs": 7, "clip_norm": 1.0}
    assert config["seed"] == 3
    option = {"model": "custom", "data": "custom", "task": "classification", "optimizer": "adamw"}
    assert options(config) == {**option, "scheduler": "constant"}
    assert [note for note in drafted_for_it.notes if not note.startswith(("Read from", "Choose the data"))] == []


SCHEDULES = {
    "StepLR(optimizer, step_size=5, gamma=0.5)": ("step", {"every_epochs": 5, "gamma": 0.5}),
    "MultiStepLR(optimizer, milestones=[3, 6])": ("multistep", {"milestones": [3, 6], "gamma": 0.1}),
    "CosineAnnealingLR(optimizer, T_max=len(loader))": ("cosine", None),
    "ReduceLROnPlateau(optimizer, factor=0.2, patience=4)": ("plateau", {"gamma": 0.2, "patience": 4}),
    "ExponentialLR(optimizer, gamma=0.9)": (
        *("custom", {"_target_": "torch.optim.lr_scheduler.ExponentialLR", "interval": "epoch", "gamma": 0.9}),
    ),
    "LambdaLR(optimizer, f)": ("constant", None),
}


@pytest.mark.parametrize("call", SCHEDULES)
def test_its_schedule(tmp_path, call):
    script = SCRIPT.replace("for epoch", f"scheduler = torch.optim.lr_scheduler.{call}\nfor epoch")
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    option, keys = SCHEDULES[call]
    assert (options(config)["scheduler"], config.get("scheduler")) == (option, keys)
    assert "LambdaLR is not drafted" in text or option != "constant"


def test_a_learning_rate_that_the_script_sets_itself_is_said(tmp_path):
    script = SCRIPT + "        for group in optimizer.param_groups:\n            group['lr'] = warm(step)\n"
    _, _, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    assert 'sets param_group["lr"] itself' in text


LOSSES = {  # the lines that compute it, the task, the loss, and what is said
    LOOP: ("classification", None, ""),
    "        out = model(x)\n        loss = criterion(out, y)\n": ("classification", None, ""),
    "        loss = nn.functional.mse_loss(model(x), y)\n": ("regression", None, ""),
    "        loss = nn.functional.l1_loss(model(x), y)\n": ("regression", {"_target_": "torch.nn.L1Loss"}, ""),
    "        loss = model(x)\n": ("own_loss", None, ""),
    "        loss = criterion(model(x) * scale, y * scale)\n": (
        "custom",
        None,
        "loss is criterion(model(x) * scale, y",
    ),
    "        loss = criterion(model(x), y)\n        loss += 0.1 * penalty(model)\n": ("custom", None, "and more"),
    "        logits, labels = contrast(model(x))\n        loss = criterion(logits, labels)\n": (
        "custom",
        None,
        "loss is",
    ),
    "        loss, hits = measured(model(x), y)\n": ("custom", None, "comes from a function that returns more"),
    "        loss = criterion(model(x, y), y)\n": ("custom", None, "calls the model with x, y, of a batch x, y"),
}


@pytest.mark.parametrize("lines", LOSSES)
def test_its_loss_becomes_a_task_or_is_said(tmp_path, lines):
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": SCRIPT.replace(LOOP, lines)})
    task, loss, said = LOSSES[lines]
    assert (options(config)["task"], config.get("loss")) == (task, loss)
    assert said in text
    assert config.get("task") == ({"loss_over": "samples", "inputs": 0} if task == "own_loss" else None)


def test_optimizers_of_parts_become_several(tmp_path):
    script = SCRIPT.replace(
        "optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)",
        "judge = Net(4)\na = torch.optim.Adam(model.parameters(), lr=args.lr)\nb = torch.optim.SGD(judge.parameters(), lr=1)",  # noqa: E501
    )
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    assert options(config)["optimizer"] == "several"
    parts = [{"/optimizer@optimizer.parts.model": "adam"}, {"/optimizer@optimizer.parts.judge": "sgd"}]
    assert config["defaults"][:2] == parts  # Hydra needs overrides after them
    assert config["optimizer"]["parts"] == {
        "model": {"lr": 0.003},
        "judge": {"momentum": 0, "weight_decay": 0, "lr": 1},
    }
    assert (options(config)["task"], "model" in config) == ("custom", False)
    assert "docs/your-step.md" in text


@pytest.mark.parametrize(
    ("files", "target"),
    [
        ({"net.py": NET}, "net.py:Net"),
        ({"nets/net.py": NET}, "nets/net.py:Net"),
        ({"nets/net.py": "from .parts import *" + NET, "nets/parts.py": ""}, "nets.net.Net"),
        ({"nets/net.py": "from other.parts import X" + NET, "other/parts.py": "X = 1"}, "nets.net.Net"),
        ({"nets/net.py": "from nets.parts import X" + NET, "nets/parts.py": "X = 1"}, "nets.net.Net"),
        ({"nets/net.py": "from parts import X" + NET, "nets/parts.py": "X = 1"}, "nets/net.py:Net"),
        ({"nets/__init__.py": NET}, "nets.Net"),
    ],
)
def test_classes_in_packages_are_named_so_that_their_imports_work(tmp_path, files, target):
    _, config, _ = drafted(tmp_path, files)
    assert config["model"]["_target_"] == target


def test_a_script_that_creates_everything_and_leaves_the_loop_to_another_file(tmp_path):
    head, loop = SCRIPT.split("for epoch")
    lines = "".join(f"    {line}\n" for line in f"for epoch{loop}".splitlines())
    files = {"net.py": NET, "fit.py": f"def fit(model, loader, criterion, optimizer, args):\n{lines}"}
    run = f"from fit import fit\n{head}fit(model, loader, criterion, optimizer, args)\n"
    _, config, text = drafted(tmp_path, {**files, "run.py": run})
    assert "Read from run.py, which" in text
    assert (config["trainer"]["epochs"], config["optimizer"]["lr"]) == (7, 0.003)


def test_of_several_scripts_one_is_chosen_and_named(tmp_path):
    files = {"net.py": NET, "train_a.py": SCRIPT, "train_b.py": SCRIPT.replace("0.003", "0.004")}
    with pytest.raises(ConfigurationError, match="Choose with --script file.py"):
        drafted(tmp_path, files)
    _, config, text = drafted(tmp_path, files, script="train_b.py")
    assert config["optimizer"]["lr"] == 0.004
    assert "Read from train_b.py, one of 2 training scripts, which was not run." in text
    with pytest.raises(ConfigurationError, match=r"no such training script. Did you mean train_b.py"):
        drafted(tmp_path, files, script="train_bb.py")


def test_classes_of_the_same_name_are_told_apart_by_the_script(tmp_path):
    other = NET.replace("width, depth=1", "size")
    files = {"a/net.py": other, "a/train.py": SCRIPT, "b/net.py": NET, "b/train.py": SCRIPT}
    for folder, argument in (("a", "size"), ("b", "width")):
        _, config, _ = drafted(tmp_path, files, script=f"{folder}/train.py", model=f"{folder}/net.py:Net")
        assert config["model"] == {"_target_": f"{folder}/net.py:Net", argument: 16}


def test_an_object_that_the_model_gets_becomes_a_section(tmp_path):
    nets = NET + "class Head(nn.Module):\n    def __init__(self, size): ...\n"
    script = SCRIPT.replace("Net(args.width)", "Net(Head(5), depth=nn.ReLU())").replace(
        "import Net", "import Net, Head"
    )
    _, config, _ = drafted(tmp_path, {"net.py": nets, "train.py": script}, model="net.py:Net")
    assert config["model"]["width"] == {"_target_": "net.py:Head", "size": 5}
    assert config["model"]["depth"] == {"_target_": "torch.nn.ReLU"}


def test_a_model_that_gets_the_command_line_gets_its_defaults(tmp_path):
    net = NET.replace("width, depth=1): ...", "args):\n        self.width = args.width")
    _, config, _ = drafted(tmp_path, {"net.py": net, "train.py": SCRIPT.replace("Net(args.width)", "Net(args)")})
    assert config["model"]["args"] == {"_target_": "types.SimpleNamespace", "width": 16}


def test_what_is_computed_is_said_in_the_draft(tmp_path):
    script = SCRIPT.replace("Net(args.width)", "Net(samples.width)").replace(
        "=args.batch_size", "=8 * world, sampler=s"
    )
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    assert config["model"]["width"] == "???"
    lines = ("model.width: the script passes samples.width.", "Replace ???: model.width.")
    assert all(f"# {line}\n" in text for line in lines)
    assert "data.batch_size: the script computes it (8 * world); 64 is a guess." in text
    assert "DataLoader has sampler=s: set data.sampler." in text


def test_a_distributed_sampler_is_the_loops_and_the_batch_is_one_ranks(tmp_path):
    script = SCRIPT.replace("torch.manual_seed(3)\n", "s = torch.utils.data.DistributedSampler(samples)\n").replace(
        "=args.batch_size", "=32, sampler=s"
    )
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    assert config["data"]["batch_size"] == 32
    assert "set data.sampler" not in text
    assert "data.batch_size: the script's is that of one rank, ours of all: multiply it by their number." in text


def test_a_model_may_be_a_sequence_of_layers(tmp_path):
    _, config, _ = drafted(tmp_path, {"net.py": NET.replace("nn.Module", "nn.Sequential"), "train.py": SCRIPT})
    assert config["model"]["_target_"] == "net.py:Net"


MNIST = """
from torchvision import datasets, transforms
tf = transforms.Compose([transforms.Resize(args.width), transforms.Normalize((0.5,), (0.5,))])
held = datasets.MNIST("../down", train=False, transform=transforms.ToTensor())
"""


def test_data_of_torchvision_are_those_of_the_script_with_its_transforms(tmp_path, monkeypatch):
    data = "datasets.MNIST('../down', train=True, download=True, transform=tf)"
    script = SCRIPT.replace("torch.manual_seed(3)\n", MNIST).replace("(samples,", f"({data},")
    drafted_for_it, config, _ = drafted(tmp_path, {"a/net.py": NET, "a/train.py": script})
    assert (options(config)["data"], config["data"]["_target_"]) == ("custom", "manyheads_data.py:data")
    text = drafted_for_it.files[tmp_path / "manyheads_data.py"]
    seen, scope = list[dict](), dict[str, Any]()
    monkeypatch.setattr("torchvision.datasets.MNIST", lambda **given: seen.append(given))
    exec(text, scope)
    for split in ("train", "val"):
        scope["data"](split)
    assert [given["root"] for given in seen] == ["down", "down"]  # the script is started in its folder
    assert [(given["train"], given.get("download")) for given in seen] == [(True, True), (False, None)]
    resize, normalize = seen[0]["transform"].transforms
    assert (resize.size, normalize.mean) == (16, [0.5])
    assert type(seen[1]["transform"]).__name__ == "ToTensor"
    with pytest.raises(ValueError, match="test"):
        scope["data"]("test")


@pytest.mark.parametrize(
    "call", ["MNIST('down', transform=views(3))", "STL10('down')", "CIFAR10('d', transform=local.T)", "MNIST(*given)"]
)
def test_data_of_torchvision_that_are_computed_are_named(tmp_path, call):
    script = "from torchvision import datasets\nimport local\n" + SCRIPT.replace("(samples,", f"(datasets.{call},")
    files = {"net.py": NET, "local.py": "T = None", "train.py": script}
    drafted_for_it, config, text = drafted(tmp_path, files)
    assert "_target_" not in config["data"]
    assert f"data are torchvision's {call.partition('(')[0]}" in text
    assert tmp_path / "manyheads_data.py" not in drafted_for_it.files


def test_what_the_script_also_calls_is_said(tmp_path):
    net = NET + "    def follow(self): ...\n    def unused(self): ...\n"
    data = "class Pairs:\n    def __len__(self): ...\n    def __getitem__(self, i): ...\n    def draw(self): ...\n"
    script = SCRIPT.replace("(samples,", "(Pairs(),").replace("from net import Net", "from net import Net, Pairs")
    script = script.replace(
        "criterion =", "model.apply(start)\nif args.load:\n    model.load_state_dict(old)\ncriterion ="
    )
    script = script.replace("args = ", 'parser.add_argument("--load")\nargs = ')
    script += "        model.module.follow()\n    loader.dataset.draw()\n"
    _, _, text = drafted(tmp_path, {"net.py": net + data, "train.py": script})
    said = [line for line in text.splitlines() if "also calls" in line]
    calls = ("model.apply(start)", "model.module.follow()", "loader.dataset.draw()")
    assert said == [f"# The script also calls {call}, which a run does not." for call in calls]


def test_settings_that_the_script_may_change_are_named_with_their_defaults(tmp_path):
    script = SCRIPT.replace("torch.manual_seed(3)", "if big:\n    args.width = 8\n    args.batch_size = 8")
    _, config, text = drafted(tmp_path, {"net.py": NET, "train.py": script})
    assert config["model"]["width"] == "???"
    assert "# model.width: the script passes args.width, which is 16 at first.\n" in text
    assert "the script computes it (args.batch_size, which is 32 at first)" in text


def test_settings_that_a_model_reads_and_the_script_lacks_are_named(tmp_path):
    net = NET.replace("width, depth=1): ...", "args):\n        print(args.width, args.cuda, args.vocabulary)")
    script = SCRIPT.replace("Net(args.width)", "Net(args)").replace(
        "args = ", 'parser.add_argument("--gpu", type=int)\nparser.add_argument("--cuda", default=True)\nargs = '
    )
    script = script.replace("torch.manual_seed(3)", "args.cuda = args.gpu is not None")
    _, config, text = drafted(tmp_path, {"net.py": net, "train.py": script})
    settings = {"_target_": "types.SimpleNamespace", "cuda": False, "vocabulary": "???", "width": 16}
    assert config["model"]["args"] == settings
    assert "# Replace ???: model.args.vocabulary.\n" in text


def test_all_parts_in_a_file_that_runs_when_it_is_imported_are_named(tmp_path):
    parts = "model = Net(args.width)\njudge = Judge(4)\na = torch.optim.Adam(model.parameters())\n"
    script = SCRIPT.replace("from net import Net", NET + NET.replace("Net", "Judge")).replace(
        "model = Net(args.width)\n", f"{parts}b = torch.optim.SGD(judge.parameters(), lr=1)\n"
    )
    script = script.replace("optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)\n", "")
    _, _, text = drafted(tmp_path, {"train.py": script}, model="train.py:Net")
    for name in ("Net", "Judge"):
        assert f"# Importing train.py runs its script: move {name} to another file, and name that.\n" in text


def test_a_stream_is_read_as_one(tmp_path):
    head = "from torch.utils.data import IterableDataset\n"
    data = head + "class Lines(IterableDataset):\n    def __init__(self, split): ...\n"
    script = SCRIPT.replace("(samples,", "(Lines('train'),").replace("from net", "from lines import Lines\nfrom net")
    _, config, _ = drafted(tmp_path, {"net.py": NET, "lines.py": data, "train.py": script})
    assert (config["data"]["_target_"], config["data"]["order"]) == ("lines.py:Lines", "stream")


def test_a_package_that_is_missing_is_named(tmp_path):
    net = "import no_such_package_here\ntry:\n    import optional_thing\nexcept ImportError: ...\n" + NET
    _, _, text = drafted(tmp_path, {"net.py": net, "train.py": SCRIPT})
    assert "net.py needs packages that are not installed: no_such_package_here." in text


def test_an_installed_package_that_hides_one_of_the_folder_is_named(tmp_path):
    files = {"yaml/net.py": "from .parts import X" + NET, "yaml/parts.py": "X = 1"}
    _, _, text = drafted(tmp_path, files)
    assert "needs yaml of this folder, which an installed package hides" in text


def test_files_of_old_pythons_are_read_and_others_named(tmp_path, capsys):
    _, config, _ = drafted(
        tmp_path, {"net.py": NET, "train.py": SCRIPT + "x.cuda(async=True)\n", "old.py": "print 'x'\n"}
    )
    assert config["optimizer"]["lr"] == 0.003
    printed = capsys.readouterr()
    assert "not read: old.py, line 1: Missing parentheses" in printed.out + printed.err


def test_a_model_that_is_trained_comes_before_one_that_is_only_called(tmp_path):
    nets = NET + "class Ahead(nn.Module):\n    def __init__(self): ...\n"
    script = SCRIPT.replace("model = ", "teacher = Ahead()\nmodel = ").replace("import Net", "import Net, Ahead")
    (tmp_path / "net.py").write_text(nets)
    (tmp_path / "train.py").write_text(script)
    assert [cls.name for cls in find(tmp_path).models] == ["Net", "Ahead"]
