"""What an agent of W&B's sweeps starts: the command of the page, which trains and publishes under the agent's id."""

import re

import pytest
import yaml

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import FAST, ROOT
from tests.launchers.companions.publishing.test_wandb import records

pytestmark = [pytest.mark.needs("wandb"), pytest.mark.processes]
RUN_ID, SWEEP = "ab12cd34", "4k2x9q"


@pytest.fixture(scope="module")
def sweep() -> dict:
    page = (ROOT / "docs" / "other-libraries.md").read_text()
    (text,) = re.findall(r"```yaml\n# sweep.yaml\n(.*?)```", page, re.DOTALL)
    return yaml.safe_load(text)


def words(sweep: dict, **values: object) -> list[str]:
    """The command that the client composes of the sweep's and of what its server chose."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args, make_launch_sweep_entrypoint

    arguments = create_sweep_command_args({"args": {name: {"value": value} for name, value in values.items()}})
    command, chosen = make_launch_sweep_entrypoint(arguments, [*sweep["command"]])
    return [*command, *chosen]


def test_the_agents_command_trains_and_publishes_under_its_id(sweep, tmp_path, monkeypatch, run_command):
    program, train, *options = words(sweep, **{"optimizer.lr": 0.0375, "data.batch_size": 64})
    assert (program, train) == ("manyheads", "train")
    assert options == ["logger=[tensorboard,wandb]", "optimizer.lr=0.0375", "data.batch_size=64"]
    for name, value in {"WANDB_RUN_ID": RUN_ID, "WANDB_SWEEP_ID": SWEEP, "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    fast = [word for word in FAST if "batch_size" not in word]
    done = run_command(*options, *fast, f"hydra.run.dir={tmp_path}/run")
    assert done.code == 0, done.err
    run = RunFolder(tmp_path / "run")
    assert run.read_config()["optimizer"]["lr"] == 0.0375
    assert [path.name.rpartition("-")[2] for path in (tmp_path / "run" / "wandb").glob("offline-run-*")] == [RUN_ID]
    begun = next(one.run for one in records(tmp_path / "run" / "wandb") if one.HasField("run"))
    assert (begun.run_id, begun.sweep_id) == (RUN_ID, SWEEP)
    assert read_json(tmp_path / "run" / "trackers" / "wandb.json")["run"] == RUN_ID


def test_its_keys_and_its_goal_exist(sweep):
    assert sweep["metric"] == {"name": "best/objective", "goal": "maximize"}
    assert set(sweep["parameters"]) == {"optimizer.lr", "data.batch_size"}


def test_jobs_of_our_own_sweep_do_not_share_the_agents_id(tmp_path, monkeypatch, run_command):
    for name, value in {"WANDB_RUN_ID": RUN_ID, "WANDB_SWEEP_ID": SWEEP, "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    done = run_command("-m", *FAST, "logger=wandb", "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep")
    assert done.code == 0, done.err
    found = {path.name.rpartition("-")[2] for path in (tmp_path / "sweep").glob("*/wandb/offline-run-*")}
    assert len(found) == 2
    assert RUN_ID not in found
