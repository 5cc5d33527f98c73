"""A run that its ranks would refuse is refused by a fork of the warm process, before its folder is claimed."""

import pytest

from tests.config.test_typed_files import NET, OWN
from tests.tail import tail

pytestmark = pytest.mark.processes


WAITS = """
import os, time
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        while "RANK" in os.environ:
            time.sleep(1)
        self.layer = torch.nn.Linear(192, 2)

    def forward(self, images):
        return self.layer(images.flatten(1))
"""
STRICT = ("model=net.py:Strict", "rejects its arguments: missing a required argument: 'depth'")


@pytest.mark.parametrize(
    ("typed", "message", "launcher"),
    [
        (*STRICT, "spawn"),
        (*STRICT, "torchrun launcher.hosts=[127.0.0.2:1,127.0.0.3:1] launcher.remote_shell=none"),
        ("model=net.py:Two", "the model returns 2 outputs per sample, but the data has 3 classes", "spawn"),
    ],
)
def test_nothing_is_claimed(run_command, tmp_path, typed, message, launcher):
    """Nor is any other machine asked."""
    (tmp_path / "my_widths.py").write_text("WIDTH = 3\n")
    (tmp_path / "net.py").write_text(
        f"{NET}\nclass Two(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(192, 2)\n\n"
        "    def forward(self, images):\n        return self.layer(images.flatten(1))\n"
    )
    data = ("data=synthetic", "data.image_size=8", "data.num_classes=3")
    done = run_command(typed, *data, *OWN, "parallel=ddp", *f"launcher={launcher}".split(), "hydra.run.dir=run")
    assert done.code == 2, done.err
    assert message in done.err
    assert "optimizer" not in done.out  # no rank has shown its header
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("launcher", ["inline", *map(tail, ("spawn launcher.warm=false", "torchrun", "mpirun"))])
def test_what_ranks_refuse_leaves_no_run(run_command, tmp_path, launcher):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "my_widths.py").write_text("WIDTH = 3\n")
    strategy = "single" if launcher == "inline" else "ddp"
    words = (*f"launcher={launcher}".split(), f"parallel={strategy}", "hydra.run.dir=run")
    done = run_command(STRICT[0], "data=synthetic", "data.image_size=8", "data.num_classes=3", *OWN, *words)
    assert done.code == 2, done.err
    assert STRICT[1] in done.err
    assert not (tmp_path / "run").exists()


@tail
@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_an_agents_ranks_need_not_have_begun(run_command, tmp_path, launcher):
    """Another process finds it; the ranks wait for each other in a constructor until they are ended."""
    (tmp_path / "net.py").write_text(WAITS)
    data = ("data=synthetic", "data.image_size=8", "data.num_classes=3")
    done = run_command("model=net.py:Two", *data, *OWN, "parallel=ddp", f"launcher={launcher}", "hydra.run.dir=run")
    assert done.code == 2, done.err
    assert "the model returns 2 outputs per sample, but the data has 3 classes" in done.err
    assert not (tmp_path / "run").exists()
