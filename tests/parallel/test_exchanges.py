"""What strategies declare about their exchanges: every one of conf/parallel, or why it cannot be predicted."""

import pytest

from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import declared
from manyheads.runner.parallel.exchanges import Exchanges
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.parallel_option import ParallelOption

DEVICES = 8
NOT_PREDICTED = {"single": "one device", "replicated": "come and go"}


def exchanges(name: str, **keys: object) -> Exchanges:
    return declared("parallel", {**read_option("parallel", name), **keys}).exchanges(devices=DEVICES)


@pytest.mark.parametrize("name", options("parallel"))
def test_a_strategy_declares_what_it_exchanges_or_why_it_cannot_be_predicted(name: str) -> None:
    """A new option fails here until it declares either."""
    if name in NOT_PREDICTED:
        with pytest.raises(ConfigurationError, match=NOT_PREDICTED[name]) as refused:
            exchanges(name)
        assert refused.value.key == "parallel"
    else:
        assert exchanges(name).layout.ranks == DEVICES


def test_without_a_declaration_the_error_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match=r"parallel=ring cannot be predicted .*ParallelOption\.exchanges"):
        ParallelOption({"name": "ring"}).exchanges(devices=2)


def test_keys_that_change_what_is_sent_change_the_declaration() -> None:
    assert exchanges("ddp", bucket_cap_mb=5).bucket_bytes == 5 * 2**20
    assert exchanges("ddp", compression="bf16").gradient_scale == 0.5
    assert exchanges("zero1").shards_optimizer
    assert exchanges("local_sgd").period == 8
    assert exchanges("horovod", cycle_time=3.0).cycle == 0.003
    assert exchanges("horovod", num_groups=0).bucket_bytes == 128 * 2**20
    assert not exchanges("apex", delay_allreduce=True).overlaps
    assert exchanges("fsdp", reshard="after_backward").gathers == 1
    half = exchanges("fsdp", param_dtype="bfloat16", replicate=2)
    assert (half.weight_scale, half.gradient_scale, half.layout) == (0.5, 0.5, Layout(replicate=2, shard=4))
    assert exchanges("fsdp", param_dtype="bfloat16", reduce_dtype="float32").gradient_scale == 1.0
    assert exchanges("tensor").activation_sums == 4
    assert exchanges("pipeline", replicate=2).layout == Layout(pipeline=4, replicate=2)


@pytest.mark.parametrize(
    ("name", "keys", "key"),
    [
        ("ddp", {"compression": "powersgd"}, "parallel.compression"),
        ("horovod", {"op": "adasum"}, "parallel.op"),
        ("fsdp", {"replicate": 3}, "parallel"),
    ],
)
def test_what_cannot_be_predicted_names_the_key(name: str, keys: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        exchanges(name, **keys)
    assert refused.value.key == key
