"""A tuning from its overrides to the experiment that it writes, with runs that only seem to be made."""

import json
import math
import re
import sys

import pytest
from jsonschema import Draft202012Validator

from manyheads.runner.answers.measure.runs import Runs
from manyheads.runner.answers.tune import tune as module
from manyheads.runner.answers.tune.tune import TuningTerms
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.composing import run_config
from manyheads.runner.config.origin import resolve_origin
from manyheads.runner.errors import ConfigurationError, Interrupted
from manyheads.runner.run import seal
from manyheads.runner.run.answer import Reply
from manyheads.runner.run.json_schema import to_json
from manyheads.runner.run.progress import EVENT
from tests.answers.tune.played import Played
from tests.conftest import FAST, execute
from tests.in_process import SMALL

pytestmark = pytest.mark.ci

OVER = "data.on_device,trainer.grad_accumulation"
FASTER = "data.on_device=true"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def played(monkeypatch, **how):
    """Have the runs of tunings seem to be made; returns what is filled with them."""
    made = []

    def runs(folder):
        made.append(Played(folder, **how))
        return made[-1]

    monkeypatch.setattr(module, "Runs", runs)
    monkeypatch.setattr(module, "new_draw", lambda: "drawn once")
    return made


def tuned(*overrides, **terms):
    return module.tune([*SMALL, *overrides], TuningTerms(**{"budget": "250s", "over": OVER, **terms}))


def halved(arm):
    return 0.01 if FASTER in arm else 0.02


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tuning of ``name=mine`` that has found FASTER."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        made = played(patch, seconds=halved)
        answer = tuned("name=mine")
        assert made[0].configs
        return answer


@pytest.fixture
def there(finished, monkeypatch):
    """The folder of that tuning, which is asked again without any runs."""
    made = played(monkeypatch, stop=0)
    monkeypatch.chdir(finished.folder.parents[2])
    yield finished.folder.parents[2]
    assert not [config for each in made for config in each.configs]


def test_the_fastest_is_found_and_written_as_an_experiment(finished, there, capsys):
    (choice,) = finished.choices
    assert choice.change == FASTER
    assert choice.low < 2 < choice.high
    assert choice.speedup == pytest.approx(2, rel=0.02)
    assert finished.written == there / "conf" / "experiment" / "tuned_mine.yaml"
    finished.show()
    shown = capsys.readouterr().out
    assert f"same numerics: {FASTER}\n  {choice.speedup:.2f} times" in shown
    assert "wrote conf/experiment/tuned_mine.yaml" in shown
    assert re.search(r"time: your configuration \d+ s, screening \d+ s, .*deciding \d+ s", shown)
    assert "mark your configs as your own" in shown


def test_the_experiment_composes_to_the_same_run(finished, there):
    seal.trust(there / "conf", None)
    line, origin = resolve_origin(CommandLine.of([f"experiment={finished.written.stem}"], None))
    alone = run_config(list(line.overrides), line, origin)
    line, origin = resolve_origin(CommandLine.of([*SMALL, "name=mine", FASTER], None))
    assert alone.written == run_config(list(line.overrides), line, origin).written


def test_a_link_out_of_somebody_elses_folder_is_not_followed(project, monkeypatch, capsys):
    (elsewhere := project / "elsewhere").mkdir()
    (here := project / "theirs").mkdir()
    (here / "conf").symlink_to(elsewhere)
    monkeypatch.chdir(here)
    played(monkeypatch, seconds=halved)
    assert tuned().written is None
    assert not [*elsewhere.rglob("*")]
    assert "points outside" in capsys.readouterr().err


def test_nothing_is_written_where_nothing_is_faster(project, monkeypatch, capsys):
    played(monkeypatch)
    answer = tuned()
    answer.show()
    assert answer.written is None
    assert not (project / "conf").exists()
    reply = to_json(Reply("0.1.0", "tune", 0, answer, None))
    assert [*Draft202012Validator(schema_of_command("tune")).iter_errors(reply)] == []
    assert "same numerics: your configuration\n  nothing was shown to be faster" in capsys.readouterr().out


def test_a_gain_of_one_round_alone_is_no_answer(project, monkeypatch):
    """The runs of base stall while the others are screened."""
    rounds = iter(range(10**6))
    played(monkeypatch, seconds=lambda arm: 0.1 if arm == "base" and 12 < next(rounds) < 16 else 0.02)
    (choice,) = tuned().choices
    assert choice.change == ""


def test_asked_again_it_answers_the_same(finished, there):
    assert tuned("name=mine") == finished


def test_interrupted_it_says_what_it_knows_and_continues(project, monkeypatch, capsys):
    stopped = played(monkeypatch, seconds=halved, stop=85)
    with pytest.raises(Interrupted) as error:
        tuned()
    assert error.value.answer.choices[0].change == FASTER
    assert error.value.answer.written.exists()
    assert "same command continues" in error.value.__notes__[0]
    assert FASTER in capsys.readouterr().out
    resumed = played(monkeypatch, seconds=halved)
    whole = tuned()
    assert len(stopped[0].configs) + len(resumed[0].configs) == len(Runs(whole.folder).ledger.rows())
    assert whole.choices[0].change == FASTER


def test_no_other_configuration_works(project, monkeypatch):
    played(monkeypatch, fails=lambda purpose, arm: "planted" if arm != "base" else None)
    answer = tuned()
    assert answer.choices[0].change == ""
    assert answer.refused[FASTER] == "failed: planted"


def test_another_question_needs_another_folder(finished, there):
    with pytest.raises(ConfigurationError, match="holds another tuning"):
        tuned(f"hydra.sweep.dir={finished.folder}", "optimizer.lr=1")


@pytest.mark.parametrize(
    ("overrides", "terms", "key"),
    [
        (("trainer.evaluate_only=true", "checkpoint.load=x.pt"), {}, "trainer.evaluate_only"),
        ((), {"over": "trainr.*"}, "--over"),
        ((), {"budget": "soon"}, "--budget"),
        ((), {"within": 2.0}, "--within"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_key(project, monkeypatch, overrides, terms, key):
    played(monkeypatch)
    (project / "x.pt").touch()
    with pytest.raises(ConfigurationError) as error:
        tuned(*overrides, **terms)
    assert error.value.key == key
    assert not (project / "outputs").exists()


def test_the_answer_is_of_its_schema(finished):
    reply = to_json(Reply("0.1.0", "tune", 0, finished, None))
    assert [*Draft202012Validator(schema_of_command("tune")).iter_errors(reply)] == []
    assert all(math.isfinite(each) for each in reply["result"]["screened"].values())


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.tail
def test_programs_see_how_far_it_is(tmp_path):
    """A real tuning, on which nothing but its own ranks decides."""
    words = ("tune", *FAST, "--over", OVER, "--budget", "90s", "--json", "--progress", "json")
    done = execute(sys.executable, "-m", "manyheads.runner", *words, cwd=tmp_path, timeout=280)
    assert done.code == 0, done.out + done.err
    reply = json.loads(done.out)
    assert [*Draft202012Validator(schema_of_command("tune")).iter_errors(reply)] == []
    assert FASTER in reply["result"]["screened"]
    events = [json.loads(line) for line in done.err.splitlines() if line.startswith(EVENT)]
    assert any(each["what"].startswith("screen 1: ") for each in events)
