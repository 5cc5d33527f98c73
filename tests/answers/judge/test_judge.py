"""``judge`` with real runs: a gain that is found although the command was killed, checked, and cheats refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from jsonschema import Draft202012Validator

import manyheads
from manyheads.runner.answers.judge.arms import recorded_arms
from manyheads.runner.answers.judge.config_question import ConfigQuestion as Question
from manyheads.runner.answers.judge.recorded import faults
from manyheads.runner.answers.judge.session import JudgementSession
from manyheads.runner.answers.measure.rows import digest
from manyheads.runner.commands.schema import schema_of_command
from manyheads.runner.config import saved
from manyheads.runner.config.lookup import CONF
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run.ledger import JUDGED as NAME
from manyheads.runner.run.progress import EVENT
from tests.answers.judge import live
from tests.conftest import ROOT, execute
from tests.tail import tail

COMMAND = (sys.executable, "-m", "manyheads.runner", "judge")
ARMS = Path(__file__).parents[1] / "measure" / "arms.py"
BASE = (
    *(f"model={ARMS}:Net", f"data={ARMS}:Samples", "launcher=spawn", "launcher.threads_per_rank=1"),
    *("trainer.device=cpu", "data.num_workers=0", "hydra.sweep.dir=judged", "trust=all"),
)
SLOW = "+model.pause=0.02"

pytestmark = [pytest.mark.ci, pytest.mark.processes, pytest.mark.slow]


def judge(*words, cwd, timeout=280):
    return execute(*COMMAND, *words, cwd=cwd, timeout=timeout)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A judgement that was killed in its first rounds, and then asked for again."""
    place = tmp_path_factory.mktemp("judge")
    asked = (*BASE, SLOW, "--change", "model.pause=0", "--budget", "4m")
    process = subprocess.Popen([*COMMAND, *asked], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ledger, until = place / "judged" / NAME, time.monotonic() + 120
    while not (ledger.exists() and '"round"' in ledger.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return judge(*asked, "--progress", "json", cwd=place), asked, place


@pytest.fixture
def content(judged):
    return json.loads((judged[2] / "judged" / "judgement.json").read_text())


def test_a_gain_is_kept(judged, content):
    done, _, _ = judged
    assert done.code == 0, done.out + done.err
    assert "keep:" in done.out
    assert "fewer seconds per update" in done.out
    assert "the same numbers to the last bit" in done.out
    assert content["claims"]["effects"][0]["low"] > 0
    assert (
        f'<p id="headline">{done.out[done.out.index("keep:") :].splitlines()[0]}</p>'
        in (judged[2] / "judged" / "judgement.html").read_text()
    )


def test_programs_see_how_far_it_is(judged):
    events = [json.loads(line) for line in judged[0].err.splitlines() if line.startswith(EVENT)]
    assert {each["event"] for each in events} == {"progress"}
    assert "round" in events[-1]["what"]


def test_what_was_interrupted_is_in_the_ledger_and_not_in_a_round(content):
    rows = [line["content"] for line in content["lines"][1:]]
    started = {row["number"] for row in rows if row["state"] == "started"}
    completed = [row for row in rows if row["state"] == "completed" and row["purpose"] == "round"]
    assert started == set(range(max(started) + 1))
    assert len(content["claims"]["effects"][0]["differences"]) * 2 <= len(completed)


def test_asked_again_it_gives_the_same_answer_and_runs_nothing(judged, content):
    _, asked, place = judged
    done = judge(*asked, cwd=place)
    assert done.code == 0
    assert json.loads((place / "judged" / "judgement.json").read_text()) == content


def test_its_check_passes_offline(judged, tmp_path):
    shutil.copy(judged[2] / "judged" / "judgement.json", tmp_path)
    done = judge("--check", ".", cwd=tmp_path)  # its folder stands for it
    assert done.code == 0, done.out
    assert "all claims follow" in done.out
    assert "--again judgement.json" in done.out


def test_its_answers_are_of_their_schema(judged, tmp_path):
    _, asked, place = judged
    path = shutil.copy(place / "judged" / "judgement.json", tmp_path)
    schema = Draft202012Validator(schema_of_command("judge"))
    for done in (judge(*asked, "--json", cwd=place), judge("--check", path, "--json", cwd=tmp_path)):
        reply = json.loads(done.out)
        assert [*schema.iter_errors(reply)] == []
        assert reply["result"] is not None


def test_from_python_it_gives_the_same_answer(judged, content, monkeypatch):
    _, asked, place = judged
    monkeypatch.chdir(place)
    overrides, flags = asked[: asked.index("--change")], asked[asked.index("--change") :]
    verdict = manyheads.judge(overrides, change=flags[1], budget=flags[3])
    assert verdict
    assert (verdict.verdict, verdict.path) == ("keep", place / "judged" / "judgement.json")
    effect = content["claims"]["effects"][0]
    assert verdict.low == effect["low"] > 0
    assert verdict.gain == pytest.approx(median(effect["differences"]))


def test_of_a_judgement_by_somebody_else_nothing_untrusted_is_run(content, tmp_path):
    for line in content["lines"]:
        line["seal"] = None
    (tmp_path / "judgement.json").write_text(json.dumps(content))
    done = judge("--check", "judgement.json", cwd=tmp_path)
    assert "The rows were recorded by somebody else." in done.out
    done = judge("--again", "judgement.json", cwd=tmp_path)
    assert done.code == 2
    assert "names code outside the allowed classes" in done.err
    assert not list(tmp_path.rglob("runs"))


def test_runs_that_somebody_else_recorded_are_not_continued(judged, tmp_path):
    _, asked, place = judged
    shutil.copytree(place / "judged", tmp_path / "judged")
    ledger = tmp_path / "judged" / NAME
    ledger.write_text(ledger.read_text().replace('"seal": "', '"seal": "0'))
    done = judge(*asked, cwd=tmp_path)
    assert done.code == 2
    assert "holds runs that you did not record" in done.err


@pytest.mark.tail
def test_a_judgement_is_judged_again(judged, tmp_path):
    path = judged[2] / "judged" / "judgement.json"
    done = judge("--again", str(path), "hydra.sweep.dir=again", "--budget", "4m", "--json", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert [*Draft202012Validator(schema_of_command("judge")).iter_errors(json.loads(done.out))] == []
    draws = [
        json.loads(each.read_text())["lines"][0]["content"]["draw"] for each in (path, tmp_path / "again" / path.name)
    ]
    assert draws[0] != draws[1]


@pytest.mark.tail
def test_a_change_that_computes_something_else_is_judged_by_whole_trainings(tmp_path):
    change = ("--change", "model.pause=0 +model.half=true")
    words = (*BASE, SLOW, "trainer.epochs=1", *change, "--on", "speed,val_loss", "--budget", "4m")
    refused = judge(*words[:-4], cwd=tmp_path)
    assert refused.code == 2
    assert "--on speed,<metric> --allow-changed-numerics" in refused.err
    done = judge(*words, "--allow-changed-numerics", "hydra.sweep.dir=trained", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert re.search(r"keep: .* % fewer seconds of training .*\nval_loss: ", done.out), done.out
    assert judge("--check", "trained/judgement.json", cwd=tmp_path).code == 0


def test_paired_trainings_share_the_seed_of_their_round(tmp_path):
    words = (
        "model=mlp",
        "data=digits",
        "trainer.epochs=1",
        "optimizer.lr=0.002",
        *live.COMMON,
        "hydra.sweep.dir=judged",
    )
    done = judge(
        *words, "--change", "optimizer.lr=0.05", "--on", "val_loss", "--paired", "--budget", "4m", cwd=tmp_path
    )
    assert done.code == 0, done.err
    content = json.loads((tmp_path / "judged" / "judgement.json").read_text())
    rounds = [line["content"] for line in content["lines"][1:] if line["content"]["purpose"] == "round"]
    assert len({row["seed"] for row in rounds}) == len({row["round"] for row in rounds})
    assert faults(content) == []
    assert "differences between runs with the same seed" in done.out


def test_a_session_does_not_count_a_change_that_is_refused_for_its_budget(tmp_path):
    words = (*BASE, "trainer.epochs=1", "--change", "optimizer.lr=0.2", "--on", "val_loss", "--session", "night.jsonl")
    refused = judge(*words, "--budget", "1s", "--json", cwd=tmp_path)
    assert refused.code == 2, refused.err
    assert json.loads(refused.out)["error"]["key"] == "--budget"
    assert "change 1 of the session night.jsonl" in refused.err
    assert "does not count this change" in refused.err
    assert not [*(tmp_path / "judged").glob("r*"), *(tmp_path / "judged").glob(NAME)]
    assert JudgementSession(tmp_path / "night.jsonl").ask("another", "", 0.05)[0] == 1


@pytest.mark.tail
def test_arms_of_two_ranks_take_the_same_steps(tmp_path):
    live.record(tmp_path, "ddp", seconds=0)
    content = json.loads((tmp_path / "judgement.json").read_text())
    assert content["claims"]["numerics"] == "same bits"


@pytest.mark.tail
@pytest.mark.parametrize("change", ["trainer.channels_last=true", "precision=bf16"])
def test_rounding_in_a_network_of_relus_is_not_taken_for_other_numbers(tmp_path, change):
    """Activations near zero and pixels of equal size are many in a ResNet; the last bit decides about them."""
    resnet = ("model=resnet18", "data=synthetic", "data.image_size=64", "data.batch_size=32", "trainer.device=cpu")
    done = judge(*resnet, "hydra.sweep.dir=judged", "--change", change, "--budget", "1s", cwd=tmp_path)
    assert "--budget" in done.err
    assert "different numbers" not in done.err
    rows = [json.loads(line)["content"] for line in (tmp_path / "judged" / NAME).read_text().splitlines()[1:]]
    (steps,) = (row for row in rows if (row["purpose"], row["arm"], row["state"]) == ("steps", "change", "completed"))
    assert max(entry["largest"] for entry in steps["findings"]["differences"]) > 0.05


def rows_of(content, purpose):
    """The rows of completed runs."""
    found = [line["content"] for line in content["lines"][1:]]
    return [row for row in found if row["purpose"] == purpose and row["state"] == "completed"]


def slow(content):
    """The findings of a run that took longer than clocks may differ: of base, which pauses."""
    return next(row["findings"] for row in rows_of(content, "round") if row["arm"] == "base")


def edited(content):
    slow(content)["seconds"] *= 2


def faster(content):
    slow(content)["seconds"] /= 10


def slightly_slower(content):
    for row in rows_of(content, "round"):
        row["findings"]["seconds"] += 0.03 * (row["arm"] == "base")


def swapped(content):
    for row in (line["content"] for line in content["lines"][1:]):
        if row["purpose"] == "round" and row["round"] == 1:
            row["arm"] = {"base": "change", "change": "base"}[row["arm"]]


def left_out(content):
    last = rows_of(content, "round")[1]["number"]
    content["lines"] = [line for line in content["lines"] if line["content"].get("number") != last]


def other_config(content):
    content["lines"][0]["content"]["changed"]["optimizer"]["lr"] = 0.5


def other_code(content):
    rows_of(content, "round")[-1]["machine"] = "0" * 16


def edited_meanwhile(content):
    rows_of(content, "round")[-1]["code"] = "0" * 16


def other_weights(content):
    rows_of(content, "round")[-1]["findings"]["weights_sha256"] = "0" * 64


def fewer_samples(content):
    rows_of(content, "round")[-1]["findings"]["samples"] -= 1


def at_once(content):
    rows_of(content, "round")[1]["began"] -= 1000


def other_seed(content):
    rows_of(content, "round")[0]["seed"] = 7


def endless_claim(content):
    content["claims"]["effects"][0]["low"] = 10**400


def better_claim(content):
    content["claims"]["effects"][0]["low"] *= 2


def untyped(content):
    for row in rows_of(content, "facts"):
        row["findings"]["dtypes"] = "float32"


def without_updates(content):
    del rows_of(content, "trial")[0]["findings"]["updates"]


@pytest.mark.parametrize("change", [untyped, without_updates])
def test_values_of_another_type_are_refused_in_words(content, change):
    change(content)
    with pytest.raises(ConfigurationError, match=r"a value of a run is missing, or has another type\.$"):
        faults(content)


@pytest.mark.parametrize("section", ["checkpoint", "parameters", "data"])
def test_a_config_whose_section_has_another_type_is_refused(content, section):
    question = Question.of(content["lines"][0]["content"])
    config = {**question.base, section: [5]}
    with pytest.raises(ConfigurationError, match=f"holds a config without {section}"):
        recorded_arms(replace(question, base=config), [], Path("judgement.json"), is_own=False)


def test_an_option_whose_name_is_too_long_for_a_file_is_refused(content):
    question = Question.of(content["lines"][0]["content"])
    config = {**question.base, "launcher": {**question.base["launcher"], "name": "x" * 5000}}
    with pytest.raises(ConfigurationError):
        recorded_arms(replace(question, base=config), [], Path("judgement.json"), is_own=False)


def test_a_config_that_names_further_files_is_refused(content, tmp_path, monkeypatch):
    """Hydra would compose them unchecked, with variables of the environment in them."""
    monkeypatch.setenv("SECRET", "s3cret")
    (tmp_path / "theirs.yaml").write_text("# @package _global_\nname: ${oc.env:SECRET}\n")
    question = Question.of(content["lines"][0]["content"])
    files = [*({group: saved.NAME} for group in GROUPS), "_self_", os.path.relpath(tmp_path / "theirs", CONF)]
    config = {**question.base, "defaults": files}
    with pytest.raises(ConfigurationError, match="^defaults: a saved config cannot have a key of that name"):
        recorded_arms(replace(question, base=config), [], Path("judgement.json"), is_own=False)


def test_rounds_that_are_missing_are_counted_once(content):
    """However many a file says there were."""
    rows_of(content, "round")[-1]["round"] = 10**15
    assert sum("is incomplete" in each for each in faults(content)) == 1


@pytest.mark.parametrize(
    ("cheat", "said"),
    [
        (edited, "the file system's clock"),
        (faster, "the file system's clock"),
        (slightly_slower, "runs of base typically measured "),
        (swapped, "by the recorded draw"),
        (left_out, "is missing"),
        (other_config, "does not have the config of change"),
        (other_code, "differs in versions, devices or code"),
        (edited_meanwhile, "a file was edited meanwhile"),
        (other_weights, "has other weights than base after its updates"),
        (fewer_samples, "samples in its updates"),
        (at_once, "had ended"),
        (other_seed, "has the seed 7"),
        (better_claim, "the file claims"),
        (endless_claim, "the file claims"),
    ],
)
def test_a_cheat_is_found_even_if_the_chain_is_made_anew(content, cheat, said):
    cheat(content)
    if cheat not in (better_claim, endless_claim):
        assert any("the ledger: line" in each for each in faults(content))
    before = ""
    for line in content["lines"]:
        line["digest"] = before = digest(line["content"], before)
    found = faults(content)
    assert not any("the ledger" in each for each in found)
    assert any(said in each for each in found), found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("+data.drop=0.01", "updates|takes .* samples|trains on other samples"),
        tail("data.batch_size=32", "an epoch of the change has 10 updates, of base 5"),
        tail("trainer.limit_val=1", "the change evaluates 64 samples, base 80"),
        ("+data.leak=8", "8 of the samples that the change evaluates are among its training samples"),
        tail("+model.matmul=medium", "the change sets torch's precision of float32 products to medium"),
        ("optimizer.lr=0.0100001", "different numbers in double precision: after one step the weight"),
        ("+model.half=true", "the change computes in bfloat16, base in float32, and no other precision was asked for"),
    ],
)
def test_a_change_that_computes_less_is_refused(tmp_path, change, said):
    done = judge(*BASE, "optimizer.lr=0.01", "+model.cast=false", "--change", change, cwd=tmp_path)
    assert done.code == 2, done.out + done.err
    assert any(re.search(said, line) for line in done.err.splitlines()), done.err


def test_a_change_that_fails_is_discarded(tmp_path):
    done = judge(*BASE, "--change", "+model.fails=true", cwd=tmp_path)
    assert done.code == 3
    assert "discard: the change fails where base does not" in done.out
    assert "planted" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model=mlp",), "Name the change"),
        (("model=mlp", "--change", "seed=2"), "cannot compare that"),
        (("model=mlp", "--change", "model=mlp"), "changes nothing"),
        (("model=mlp,resnet18", "--change", "seed=2"), "Give one value"),
        (("model=mlp", "--change", "model.depth=1", "--budget", "soon"), "--budget soon is not allowed"),
        (("model=mlp", "--change", "model.depth=1", "--alpha", "5"), "--alpha 5"),
        (("model=mlp", "--change", "model.depth=1", "--allow-changed-numerics"), "Name what must not get worse"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(tmp_path, words, said):
    done = judge(*words, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err
    assert not list(tmp_path.rglob("runs"))


def test_no_part_of_it_imports_torch_in_the_parent():
    code = "import sys, manyheads.runner.answers.judge.judge; print('torch' in sys.modules)"
    assert execute(sys.executable, "-c", code, cwd=ROOT / ".names", cold=True).out.strip() == "False"
