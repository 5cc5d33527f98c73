"""The command line as Hydra's own parser understands it."""

from pathlib import Path

import pytest

from manyheads.runner.config.command_line import CommandLine, Source, choices, parsed
from manyheads.runner.config.lookup import CONF
from manyheads.runner.errors import ConfigurationError, UnknownName, WrongValue


def line(*arguments: str, home: Path = Path("/home")) -> CommandLine:
    return CommandLine(arguments, home)


def test_flags_and_overrides():
    found = line("-m", "parallel=ddp,dp", "+a.b=1", "--config-name", "x=1")
    assert found.overrides == ("parallel=ddp,dp", "+a.b=1")
    assert found.chosen == {"parallel", "a.b"}
    assert (found.flags.multirun, found.flags.config_name) == (True, "x=1")


@pytest.mark.parametrize(
    ("arguments", "kind", "key"),
    [
        (("--nothing",), UnknownName, "--nothing"),
        (("--cfg", "jobs"), WrongValue, "--cfg/-c"),
        (("--config-dir",), ConfigurationError, "--config-dir/-cd"),
    ],
)
def test_what_hydra_cannot_parse_is_refused_with_its_usage(arguments, kind, key, capsys):
    with pytest.raises(ConfigurationError) as refused:
        line(*arguments)
    assert (type(refused.value), refused.value.key) == (kind, key)
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--lr", "0.1"), "--lr: there is no such flag. Keys are set without dashes: optimizer.lr=0.1"),
        (("--batch-size=8",), "--batch-size=8: there is no such flag. Keys are set without dashes: data.batch_size=8"),
        (("--trainer.epochs", "a=1"), "Keys are set without dashes: trainer.epochs=<value>"),
        (("--nothing",), "--nothing: there is no such flag. --help lists them."),
    ],
)
def test_a_flag_that_is_meant_as_a_key(arguments, said):
    with pytest.raises(UnknownName) as refused:
        line(*arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "primary"),
    [
        ((), CONF / "config.yaml"),
        (("--config-name", "other"), CONF / "other.yaml"),
        (("-cp", "a/../saved", "-cn", "run.yaml"), Path("/home/saved/run.yaml")),
        (("--config-path=/x",), Path("/x/config.yaml")),
        (("--config-p", "/x", "--config-n", "a/b"), Path("/x/a/b.yaml")),
    ],
)
def test_the_primary_config(arguments, primary):
    assert line(*arguments).primary == primary


@pytest.mark.parametrize(
    ("arguments", "flags", "overrides"),
    [
        (("-m", "a=1", "--config-dir", "conf", "b=2"), ("-m", "--config-dir", "conf"), ("a=1", "b=2")),
        (("a=1", "--cfg", "job", "b=2", "a=1"), ("--cfg", "job"), ("a=1", "b=2", "a=1")),
        (("x=1", "-cn", "x=1", "y=2"), ("-cn", "x=1"), ("x=1", "y=2")),
    ],
)
def test_overrides_may_stand_between_flags(arguments, flags, overrides):
    assert line(*arguments).overrides == overrides
    assert line(*arguments).arguments == (*flags, *overrides)  # in an order that Hydra itself can parse


def test_where_hydra_is_told_to_look(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    places = "hydra.searchpath=['file:///b',c,pkg://d.e,structured://f]"
    assert list(line("--config-path", "a", "--config-dir", "x/../y", places).sources()) == [
        Source("--config-path", "a", Path("/home/a")),
        Source("--config-dir", "x/../y", tmp_path / "y"),
        Source("hydra.searchpath", "file:///b", Path("/b")),
        Source("hydra.searchpath", "c", Path("c")),
        Source("hydra.searchpath", "pkg://d.e", None),
        Source("hydra.searchpath", "structured://f", None),
    ]
    assert list(line("-cp", "pkg://a").sources()) == [Source("--config-path", "pkg://a", None)]
    assert list(line("seed=1", "hydra.searchpath=x", "-cn", "y").sources()) == []


def test_it_is_changed_by_making_another_one():
    before = line("a=1", "b=2", "-m")
    assert before.without(["a=1"]).arguments == ("b=2", "-m")
    after = line("-cp", "x", "a=1").composing(Path("/y"), "z")
    assert after.arguments == ("-cp", "x", "a=1", "--config-path", "/y", "--config-name", "z")
    assert after.primary == Path("/y/z.yaml")
    assert before == line("a=1", "b=2", "-m")


def test_the_values_of_an_override():
    typed = ["a='x/y',z", "b=[c,'d']", "e={f:'g'}", "broken=[", "h=choice(1,2)"]
    assert [choices(override) for override in parsed(typed)] == [["x/y", "z"], [["c", "d"]], [{"f": "g"}], [1, 2]]
