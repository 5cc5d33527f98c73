"""What each option of conf/parallel does in one process; tests of several ranks are in tests/launchers."""

import pytest
import torch
from torch import nn

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import declared, declared_class
from manyheads.runner.parallel.rank.parallel import Parallel
from tests.in_process import config, opened, small, train, weights

WRAPS_THE_OPTIMIZER = ("horovod", "zero1")
MESHES = ("fsdp", "tensor", "pipeline", "mesh")  # one class, whose sizes differ
ONE_PROCESS = [
    name for name in options("parallel") if declared_class("parallel", read_option("parallel", name)).one_process
]


def strategy(name: str, *, rank: int = 0, ranks: int = 1, **changes) -> Parallel:
    place = {"rank": rank, "local_rank": rank, "world_size": ranks, "device_type": "cpu"}
    section = read_option("parallel", name)
    sizes = dict.fromkeys(getattr(declared_class("parallel", section), "dimensions", ()), 1)  # as the frozen config has
    return declared("parallel", section | sizes | changes).instantiate(**place)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", options("parallel"))
def test_every_option_has_a_class_of_its_name(name):
    room = "model_parallel" if name in MESHES else name
    assert read_option("parallel", name)["_target_"].startswith(f"manyheads.runner.parallel.rank.{room}.")
    assert isinstance(strategy(name), Parallel)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", [name for name in options("parallel") if name not in WRAPS_THE_OPTIMIZER])
def test_before_wrapping_everything_is_plain(name):
    parallel, model = strategy(name), nn.Linear(2, 2)
    assert parallel.device == torch.device("cpu")
    assert parallel.place(model) is model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert parallel.wrap_optimizer(optimizer, model) is optimizer
    assert parallel.unwrap(model) is model
    assert not parallel.grad_scaler(enabled=False).is_enabled()
    assert parallel.summary
    parallel.leave()  # safe before the ranks have met


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_wrapped_models_give_the_same_and_keep_their_names(name):
    parallel, model = strategy(name), nn.Linear(2, 2)
    images = torch.randn(3, 2)
    wrapped = parallel.wrap_model(parallel.place(model))
    assert torch.equal(wrapped(images), model(images))
    assert torch.equal(parallel.evaluate(wrapped, images), model(images))
    assert parallel.unwrap(wrapped) is model
    assert list(parallel.unwrap(wrapped).state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_one_rank_reduces_and_gathers_alone(name):
    parallel = strategy(name)
    values = torch.tensor([1.0, 2.0])
    assert parallel.reduce(values).tolist() == [1, 2]
    assert parallel.reduce(values, "max").tolist() == [1, 2]
    assert parallel.gather({"a": 1}) == [{"a": 1}]
    parallel.share_buffers(nn.BatchNorm1d(2))
    parallel.prime(lambda: pytest.fail("there is nothing to settle"))


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_one_process_strategies_give_the_same_run(tmp_path, precision):
    digests = {
        train(tmp_path / name, small(f"parallel={name}", f"precision={precision}")).folder.read_result()[
            "weights_sha256"
        ]
        for name in ONE_PROCESS
    }
    assert len(digests) == 1


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_checkpoints_hold_the_model_s_own_names(tmp_path, name):
    run = train(tmp_path, small(f"parallel={name}", "trainer.max_steps=1"))
    saved = torch.load(run.folder.last_checkpoint, weights_only=True)["model"]
    assert list(saved) == list(weights(run.trainer))
    assert not [key for key in saved if key.startswith("module.")]


def test_dp_without_gpus_says_that_it_is_one_replica(tmp_path):
    assert strategy("dp").summary == "one replica, the same as parallel=single"
    with opened(tmp_path, small("parallel=dp")) as trainer:
        assert isinstance(trainer.update.model, nn.DataParallel)


def test_dp_on_a_cpu_beside_gpus_stays_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = nn.Linear(2, 2)
    assert strategy("dp").wrap_model(model) is model


def test_dp_refuses_gpus_that_are_not_there():
    with pytest.raises(ConfigurationError, match=r"parallel\.device_ids=\[0, 1\].* 0 GPUs can be used"):
        config("parallel=dp", "parallel.device_ids=[0,1]")


def test_ddp_chooses_its_backend_by_the_device():
    assert strategy("ddp", ranks=3).summary == "3 ranks over gloo"
    assert strategy("ddp", backend="nccl").backend == "nccl"


def test_ddp_passes_its_options_on():
    assert strategy("ddp").options == {
        "bucket_cap_mb": 25,
        "gradient_as_bucket_view": True,
        "static_graph": False,
        "find_unused_parameters": False,
    }


@pytest.mark.parametrize(
    ("chosen", "model", "broadcasts"),
    [
        ("auto", nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), False),
        ("auto", nn.Linear(1, 1), False),
        ("auto", nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), True),
        (True, nn.BatchNorm1d(1), True),
        (False, nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), False),
    ],
    ids=str,
)
def test_ddp_sends_buffers_in_each_step_where_training_reads_them(monkeypatch, chosen, model, broadcasts):
    """Before evaluation and checkpoints they are rank 0's anyway."""
    given = {}
    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", lambda model, **options: given.update(options))
    strategy("ddp", broadcast_buffers=chosen).wrap_model(model)
    assert any(given.get(name) is False for name in ("broadcast_buffers", "forward_sync_buffers")) is not broadcasts


def test_ddp_refuses_a_model_without_parameters():
    with pytest.raises(ConfigurationError, match=r"no trainable parameters.* Set parallel=single\."):
        strategy("ddp").wrap_model(nn.ReLU())


def test_ddp_s_sync_batchnorm_replaces_batch_norm_before_the_optimizer_is_made():
    placed = strategy("ddp", sync_batchnorm=True).place(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)))
    assert isinstance(placed[1], nn.SyncBatchNorm)
    with pytest.raises(ConfigurationError, match=r"parallel\.sync_batchnorm=true: .*GPUs only"):
        config("parallel=ddp", "parallel.sync_batchnorm=true", "trainer.device=cpu")
