"""A run that its ranks would refuse is refused by a fork of the warm process, before its folder is claimed."""

import pytest

from tests.config.test_typed_files import NET, OWN

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("model=net.py:Strict", "rejects its arguments: missing a required argument: 'depth'"),
        ("model=net.py:Two", "the model returns 2 outputs per sample, where the data has 3 classes"),
    ],
)
def test_nothing_is_claimed(run_command, tmp_path, typed, message):
    (tmp_path / "my_widths.py").write_text("WIDTH = 3\n")
    (tmp_path / "net.py").write_text(
        f"{NET}\nclass Two(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(192, 2)\n\n"
        "    def forward(self, images):\n        return self.layer(images.flatten(1))\n"
    )
    data = ("data=synthetic", "data.image_size=8", "data.num_classes=3")
    done = run_command(typed, *data, *OWN, "parallel=ddp", "hydra.run.dir=run")
    assert done.code == 2, done.err
    assert message in done.err
    assert "optimizer" not in done.out  # no rank has shown its header
    assert not (tmp_path / "run").exists()
