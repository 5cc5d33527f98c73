"""Commands as tools: schemas of their arguments and answers, and the command line of a call."""

import importlib.util

import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.app import main
from manyheads.runner.commands import mcp, names
from manyheads.runner.commands.mcp.tool import CommandTool


@pytest.mark.parametrize("name", mcp.TOOLS)
def test_its_schemas_are_valid(name):
    tool = CommandTool.of(name)
    for schema in (tool.input_schema, tool.output_schema):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert tool.about


def test_there_are_few_and_none_that_people_are_asked_by():
    assert len({*mcp.TOOLS} & {*names()}) <= 10
    assert not {"trust", "clean"} & {*mcp.TOOLS}


def test_arguments_are_those_of_the_command():
    judge = CommandTool.of("judge").input_schema
    assert judge["required"] == []
    assert judge["properties"]["overrides"]["items"] == {"type": "string"}
    assert judge["properties"]["alpha"]["type"] == "number"
    assert judge["properties"]["test"]["enum"] == ["symmetric", "mean"]
    assert judge["properties"]["paired"]["type"] == "boolean"
    assert judge["properties"]["allow_changed_numerics"]["description"].startswith("with --on speed,val_acc1")
    assert CommandTool.of("diff").input_schema["required"] == ["first", "second"]
    assert [*CommandTool.of("train").input_schema["properties"]] == ["arguments"]


def test_a_call_is_a_command_line():
    given = {"overrides": ["model=mlp", "seed=3"], "change": "-x", "paired": True, "rate": False, "alpha": 0.1}
    line = ["judge", "--change=-x", "--paired", "--alpha=0.1", "model=mlp", "seed=3"]
    assert CommandTool.of("judge").words(given) == line
    assert CommandTool.of("diff").words({"second": "b", "first": "a"}) == ["diff", "a", "b"]
    assert CommandTool.of("train").words({"arguments": ["-m", "seed=1,2"]}) == ["train", "-m", "seed=1,2"]
    assert CommandTool.of("room").words({}) == ["room"]


def test_without_the_package_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)
    assert importlib.util.find_spec("json") is not None
    assert main(["mcp"]) == 2
    assert "the package mcp is not installed: pip install 'manyheads[mcp]'" in capsys.readouterr().err


@pytest.mark.needs("mcp")
def test_what_has_no_effect_is_refused(capsys, tmp_path):
    assert main(["mcp", "--folder", str(tmp_path / "missing")]) == 2
    assert "is not a folder" in capsys.readouterr().err
