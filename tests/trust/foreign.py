"""What somebody else could send: his folders, and what must not have happened afterwards."""

import os
from pathlib import Path

import yaml

from tests.conftest import FAST

OWN = """
import pathlib, torch
pathlib.Path("imported").touch()
class Net(torch.nn.Sequential):
    def __init__(self, num_classes, width=4):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, width), torch.nn.Linear(width, num_classes))
def make(*_, **__):
    pathlib.Path("called").touch()
"""
CUSTOM = (*(o for o in FAST if "width" not in o), "model=custom", "model._target_=my_package.Net")
REFUSED = "this config was not created by you on this machine"


def given(folder: Path, config: dict, *, name: str = "run.yaml") -> Path:
    """Somebody's folder with this config in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(config))
    return folder


def snapshot(folder: Path) -> dict:
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def assert_refused(done, here: Path, *parts: str) -> None:
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err
    assert done.err.startswith("error: ")
    for part in parts:
        assert part in done.err
    assert not {"imported", "called", "mark", "outputs"} & set(os.listdir(here))
