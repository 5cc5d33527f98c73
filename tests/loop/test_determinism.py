"""The README's table of what can be repeated to the bit, row by row; on the CPU."""

import os
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.runner.checkpoint.rank.load import complete, weights_sha256
from manyheads.runner.config.lookup import options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop import build, session
from manyheads.runner.loop.determinism import SWITCHES, WORKSPACE, operations_named, set_deterministic
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.provenance import without_effect
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import ALONE, attempt, small, train, weights
from tests.tail import tailed

OTHER_VALUES = {
    "name": "another",
    "notes": "'any text'",
    "tags": "[a,b]",
    "data.num_workers": "2",
    "data.fingerprint": "none",
    "trainer.log_every": "3",
    "checkpoint.every": "7",
    "checkpoint.keep": "2",
    "checkpoint.keep_every": "2",
    "checkpoint.keep_hours": "1",
    "checkpoint.asynchronous": "true",
    "checkpoint.format": "sharded",
    "launcher.stall_timeout": "99",
    "launcher.timeout": "99",
    "launcher.wait_policy": "passive",
    "parallel.timeout": "99",
}
OWNERS = {
    "data.fingerprint": ("data=digits", "data.image_size=8", "trainer.max_steps=5"),
    "parallel.timeout": ("parallel=ddp",),
}
# No images with a root; the rank is in the test's own process; tests with object storage compare weights themselves.
STORAGE = ("checkpoint.mirror", "data.cache_", "data.fetch_mb", "data.read_ahead", "data.retry_for")
ELSEWHERE = ("data.root", "launcher.", "logger", *STORAGE)


@pytest.fixture(autouse=True)
def undone(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":4096:8")
    yield
    set_deterministic(False)
    torch.set_num_threads(2)


def digest(path, *overrides):
    with file_rendezvous() as rendezvous, variables_set(rendezvous):
        run = train(path, small(*overrides))
        run.parallel.leave()
    return weights_sha256(weights(run.trainer))


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The digest of the run that changes are compared with, made once for each choice of what has a key."""
    return cache(lambda *owner: digest(tmp_path_factory.mktemp("unchanged"), *owner))


@pytest.mark.parametrize("precision", [name for name in options("precision") if name not in ("tf32", "apex")])
def test_the_same_config_again(tmp_path, precision):
    again = [digest(tmp_path / name, f"precision={precision}", "trainer.epochs=1") for name in "ab"]
    assert again[0] == again[1]


def test_keys_without_effect_have_none(tmp_path, unchanged):
    values = [f"{key}={value}" for key, value in OTHER_VALUES.items() if key not in OWNERS]
    assert unchanged() == digest(tmp_path, *values)


@pytest.mark.parametrize("key", tailed(sorted(OTHER_VALUES), always=OWNERS))
def test_each_of_them_has_none(tmp_path, unchanged, key):
    owner = OWNERS.get(key, ())
    assert unchanged(*owner) == digest(tmp_path, *owner, f"{key}={OTHER_VALUES[key]}")


def test_each_is_tried():
    assert {key for key in without_effect() if not key.startswith(ELSEWHERE)} <= {*OTHER_VALUES}


@pytest.mark.parametrize("override", ["trainer.deterministic=true", "trainer.evaluate_every=0", "parallel=dp"])
def test_neither_have_these_on_a_cpu(tmp_path, unchanged, override):
    assert unchanged() == digest(tmp_path, override)


@pytest.mark.parametrize("override", ["seed=2", "data.batch_size=16", "optimizer.lr=0.051"])
def test_these_have(tmp_path, unchanged, override):
    assert unchanged() != digest(tmp_path, override)


def test_the_first_steps_of_a_run_are_those_of_the_whole(tmp_path):
    """trainer.stop_after leaves the schedule as it is; trainer.max_steps would not."""
    whole = train(tmp_path / "whole", small("trainer.log_every=1")).trainer
    cut = train(tmp_path / "cut", small("trainer.log_every=1", "trainer.stop_after=27")).trainer
    lines = [(tmp_path / name / "steps.csv").read_text().splitlines() for name in ("whole", "cut")]
    without_timing = [[",".join(line.split(",")[:6]) for line in table] for table in lines]
    assert without_timing[1] == without_timing[0][:28]
    assert (whole.progress.step, cut.progress.step) == (40, 27)
    epochs = [(tmp_path / name / "epochs.csv").read_text().splitlines() for name in ("whole", "cut")]
    assert [len(table) for table in epochs] == [3, 2]  # an epoch that was cut has not ended


@pytest.mark.parametrize("step", [5, 20, 27])
def test_a_run_that_was_cut_can_be_gone_on_with(tmp_path, unchanged, step):
    cut = tmp_path / "cut" / "checkpoints" / "last.pt"
    digest(tmp_path / "cut", f"trainer.stop_after={step}")
    config = small(f"checkpoint.resume={cut}")
    state = complete(cut) | {"tables": {}, "is_elsewhere": True}
    run = attempt(tmp_path / "rest", config, state=state)
    run.train(seed=config["seed"], state=state)
    assert weights_sha256(weights(run.trainer)) == unchanged()


class NotDeterministic(nn.Module):
    """Uses an operation for which torch has no deterministic form on a CPU either."""

    def __init__(self, *, num_classes: int):
        super().__init__()
        self.head = nn.Linear(192, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        copy = torch.zeros_like(flat).put_(torch.arange(flat.numel(), device=flat.device), flat)
        return self.head(copy)


def test_an_operation_without_a_deterministic_form_is_named(tmp_path):
    own = ("model=custom", f"model._target_={__name__}.NotDeterministic")
    assert digest(tmp_path / "a", *own)
    config = small(*own, "trainer.deterministic=true")
    folder = RunFolder(tmp_path / "b")
    folder.write_config(config)
    heartbeat = Heartbeat.create(folder.heartbeat, ranks=1)
    frozen = RunConfig.of(config)
    parallel = build.join(frozen, **ALONE._asdict())
    with pytest.raises(
        ConfigurationError, match=r"^trainer.deterministic=true: .* no deterministic implementation of put_ on"
    ):
        session.work(frozen, parallel, folder, heartbeat)


def test_cublas_without_its_workspace_is_told(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(ConfigurationError, match="CUBLAS_WORKSPACE_CONFIG=:4096:8"), operations_named():
        raise RuntimeError(f"... not deterministic because it uses CuBLAS ... set {WORKSPACE}=:4096:8")


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), operations_named():
        raise RuntimeError("shapes differ")


def test_switches_add_up_nothing_unless_the_user_lets_them(monkeypatch):
    for name in SWITCHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    set_deterministic(False)
    assert not {*SWITCHES} & {*os.environ}
    monkeypatch.setenv(SWITCHES[0], "1")
    set_deterministic(True)
    assert [os.environ[name] for name in SWITCHES] == ["1", "0"]


def test_the_workspace_is_set_unless_the_user_did(monkeypatch):
    monkeypatch.delenv(WORKSPACE)
    set_deterministic(False)
    assert WORKSPACE not in os.environ
    set_deterministic(True)
    assert os.environ[WORKSPACE] == ":4096:8"
    assert not torch.backends.cudnn.benchmark
    monkeypatch.setenv(WORKSPACE, ":16:8")
    set_deterministic(True)
    assert os.environ[WORKSPACE] == ":16:8"
