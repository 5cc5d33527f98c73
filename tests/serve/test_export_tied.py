"""Tied weights in exported files."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

import manyheads
from manyheads.runner.checkpoint.rank.load import load, weights_sha256
from manyheads.runner.checkpoint.rank.tied import names_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.serve.rank.export import export
from tests.checkpoint.test_tied import alone, assert_same  # noqa: F401


def test_exports_hold_each_weight_once(alone, tmp_path):  # noqa: F811
    _, folder, _ = alone
    trained = manyheads.load(folder.path)
    expected = {name: each.float() for name, each in load(folder.best_checkpoint)["model"].items()}
    assert export(trained, "safetensors", tmp_path / "weights") == 0
    stored, groups = load_file(tmp_path / "weights"), [*names_of(trained.model).values()]
    assert all(len([name for name in group if name in stored]) == 1 for group in groups)
    assert_same(stored, {name: expected[name] for name in stored})
    with safe_open(tmp_path / "weights", "pt") as file:
        facts = {name: json.loads(file.metadata()[name]) for name in ("weights_sha256", "input")}
    assert facts == {"weights_sha256": weights_sha256(expected), "input": None}
    with pytest.raises(ConfigurationError, match="takes more than one tensor, .* Set --format safetensors"):
        export(trained, "torch_export", tmp_path / "program")
    result = folder.read_result()
    assert result["weights_sha256"] == weights_sha256(load(folder.last_checkpoint)["model"])
