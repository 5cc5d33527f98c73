"""An editor that follows the schema line in a written config accepts it, and marks a mistake."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from manyheads.runner.commands.init.draft_experiment import draft, find
from manyheads.runner.commands.new import write_project

LINE = "# yaml-language-server: $schema="


def of_new(folder: Path) -> Path:
    """The experiment of a new project."""
    write_project(folder / "drawn")
    return folder / "drawn" / "conf" / "experiment" / "quick.yaml"


def of_init(folder: Path) -> Path:
    """The experiment drafted for a repository."""
    (folder / "net.py").write_text("import torch\nclass Net(torch.nn.Module):\n    def __init__(self, width): ...\n")
    drafted = draft(find(folder), data="none")
    for path, text in drafted.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return next(path for path in drafted.files if path.suffix == ".yaml")


@pytest.fixture(params=[of_new, of_init])
def written(request, tmp_path) -> Path:
    return request.param(tmp_path)


def marked(path: Path, **planted: object) -> list[str]:
    """Where an editor marks the file, with these sections in place of its own."""
    [line] = [each for each in path.read_text().splitlines() if each.startswith(LINE)]
    schema = json.loads((path.parent / line.removeprefix(LINE)).read_text())
    content = {**yaml.safe_load(path.read_text()), **planted}
    return [each.json_path for each in Draft202012Validator(schema).iter_errors(content)]


def test_what_is_written_is_valid(written):
    assert marked(written) == []


@pytest.mark.parametrize(
    ("planted", "place"),
    [
        ({"trainer": {"epochs": 0}}, "$.trainer.epochs"),
        ({"trainer": {"epoch": 3}}, "$.trainer"),
        ({"optimiser": {"lr": 0.1}}, "$"),
        ({"checkpoint": {"every": "often"}}, "$.checkpoint.every"),
    ],
)
def test_a_mistake_is_marked(written, planted, place):
    assert marked(written, **planted) == [place]
