"""Runs that were recorded before the code moved resume, report and reproduce, and say which of their keys is gone."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.reproduce.recorded import read_past
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.old_configs import GONE, renewed
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import execute

RECORDED = Path(__file__).parent / "recorded"
OLD_TARGETS = [
    "launchers.horovodrun.Horovodrun",
    "launchers.inline.Inline",
    "launchers.mpirun.Mpirun",
    "launchers.spawn.Spawn",
    "launchers.torchrun.Torchrun",
    "runner.data.digits.Digits",
    "runner.data.imagefolder.ImageFolder",
    "runner.data.synthetic.Synthetic",
    "runner.data.torchvision.TorchvisionData",
    "runner.model.small_cnn.SmallCNN",
    "runner.model.torchvision.TorchvisionModel",
    "runner.parallel.apex.ApexDistributedDataParallel",
    "runner.parallel.ddp.DistributedDataParallel",
    "runner.parallel.dp.DataParallel",
    "runner.parallel.horovod.Horovod",
    "runner.parallel.single.Single",
    "runner.precision.amp.AMP",
    "runner.precision.apex.Apex",
    "runner.precision.bf16.BF16",
    "runner.precision.fp32.FP32",
    "runner.precision.fp64.FP64",
    "runner.precision.tf32.TF32",
    "runner.schedulers.Constant",
    "runner.schedulers.Cosine",
    "runner.schedulers.Step",
    "manyheads.runner.parallel.replicated.rank.Replicated",
]
TARGETS = {read_option(group, option)["_target_"] for group in GROUPS for option in options(group)}


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """A copy of the recorded run of this name."""
    return RunFolder(shutil.copytree(RECORDED / request.param, tmp_path / request.param))


def command(*arguments: str, cwd: Path) -> str:
    done = execute(sys.executable, "-m", "manyheads.runner", *arguments, cwd=cwd)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("old", OLD_TARGETS)
def test_each_class_that_moved_is_an_option_today(old):
    assert renewed({"section": {"_target_": old}})["section"]["_target_"] in TARGETS


def test_each_key_that_is_gone_belonged_to_an_option_and_is_no_key_of_it_today():
    for gone in GONE:
        assert {*gone.options} <= {*options(gone.group)}
        assert not any(gone.key in read_option(gone.group, option) for option in gone.options), gone


@pytest.mark.parametrize("name", ["completed", "interrupted"])
def test_a_recorded_config_has_only_todays_names_and_keys(name):
    config = renewed(yaml.safe_load((RECORDED / name / "run.yaml").read_text()))
    for group in GROUPS:
        assert config[group]["_target_"] in TARGETS
        option = read_option(group, config[group]["name"])
        assert {*config[group]} <= {*option}
        assert config[group].get("_option_") == option.get("_option_")


# What there was when options began to declare themselves.
OF_OLD = {
    "model": "small_cnn torchvision vit_b_16",
    "data": "cifar10 cifar100 digits fashion_mnist imagefolder imagenet mnist synthetic custom",
    "optimizer": "adam fused_adam fused_lamb fused_novograd fused_sgd sgd",
    "scheduler": "constant cosine step",
    "precision": "amp apex bf16 fp32 fp64 tf32",
    "launcher": "horovodrun inline mpirun spawn torchrun",
    "parallel": "apex ddp dp horovod single",
}


@pytest.mark.parametrize(("group", "option"), [(group, name) for group in OF_OLD for name in OF_OLD[group].split()])
def test_an_option_of_old_declares_itself_by_its_class(group, option):
    now = read_option(group, option)
    assert renewed({group: {key: value for key, value in now.items() if key != "_option_"}})[group] == {**now}


def test_a_value_that_cannot_be_had_any_more_is_refused():
    section = {"_target_": "runner.data.imagefolder.ImageFolder", "name": "imagefolder", "decode": "cpu"}
    assert "decode" not in renewed({"data": section})["data"]
    with pytest.raises(ConfigurationError, match=r"data\.decode=cuda, which this version no longer has"):
        renewed({"data": {**section, "decode": "cuda"}})


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.parametrize("run", ["interrupted"], indirect=True)
def test_a_recorded_run_resumes(run):
    command("resume", str(run.path), cwd=run.path.parent)
    result = run.read_result()
    assert (result["status"], result["steps"], result["epochs"]) == ("completed", 88, 2)
    assert result["metrics"]["val_loss"] == pytest.approx(2.3037, abs=1e-3)  # as 46a818f itself resumed it


@pytest.mark.tail
@pytest.mark.slow
@pytest.mark.parametrize("run", ["completed"], indirect=True)
def test_a_recorded_run_is_reproduced_and_reported(run):
    assert read_past(run.path).result["steps"] == 12
    out = command("reproduce", str(run.path), "hydra.run.dir=again", cwd=run.path.parent)
    assert "identical: " in out or "equal within tolerance: " in out
    again = RunFolder(run.path.parent / "again")
    assert again.read_result()["metrics"]["val_loss"] == pytest.approx(
        run.read_result()["metrics"]["val_loss"], rel=1e-4
    )
    out = command("report", str(run.path), str(again.path), "--to", "comparison", cwd=run.path.parent)
    assert "single" in out
