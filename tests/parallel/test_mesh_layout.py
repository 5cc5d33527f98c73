"""Which rank is where, which share of the data it takes, and which sizes are refused."""

import re
from contextlib import nullcontext
from importlib import metadata

import pytest

from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.option.declared import declared
from manyheads.runner.parallel.mesh_layout import Layout
from manyheads.runner.parallel.mesh_refusals import REFUSALS
from tests.in_process import config

MESH = Layout(pipeline=2, replicate=3, shard=2, tensor=4)
FOUR = ("launcher.nproc_per_node=4", "data.batch_size=48", "trainer.device=cpu")


def test_each_rank_has_a_place_of_its_own():
    places = [MESH.place_of(rank) for rank in range(MESH.ranks)]
    assert len({*places}) == 48
    assert [MESH.rank_of(place) for place in places] == list(range(48))
    assert places[:5] == [*(Layout(0, 0, 0, tensor) for tensor in range(4)), Layout(0, 0, 1, 0)]


def test_ranks_of_one_stage_and_tensor_group_have_the_same_samples():
    shares = {}
    for rank in range(MESH.ranks):
        place = MESH.place_of(rank)
        shares.setdefault((place.replicate, place.shard), set()).add(MESH.data_rank(place))
    assert sorted(shares.values(), key=min) == [{share} for share in range(MESH.data_size)]


@pytest.mark.parametrize(
    ("overrides", "layout"),
    [
        (("parallel=mesh", "parallel.tensor=2"), {"shard": 2, "tensor": 2}),
        (("parallel=mesh", "parallel.shard=1", "parallel.replicate=auto"), {"replicate": 4, "shard": 1}),
        (("parallel=mesh", "parallel.pipeline=2", "parallel.shard=2"), {"pipeline": 2, "shard": 2}),
    ],
)
def test_auto_is_what_is_left(overrides, layout):
    section = config(*overrides, *FOUR)["parallel"]
    assert {key: section[key] for key in layout} == layout


@pytest.mark.parametrize(("option", "size"), [("fsdp", "shard"), ("tensor", "tensor"), ("pipeline", "pipeline")])
def test_what_is_left_is_decided_by_the_ranks_of_each_start(option, size):
    """So that a frozen run can be resumed with other ranks."""
    frozen = config(f"parallel={option}", "trainer.grad_accumulation=4", *FOUR)
    assert frozen["parallel"][size] == "auto"
    for count in (2, 4):
        assert declared("parallel", frozen["parallel"]).layout(count)._asdict()[size] == count


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("parallel=mesh", "parallel.tensor=3"), r"tensor 3 is 3, which does not fit 4 ranks"),
        (("parallel=mesh", "parallel.shard=2"), r"is 2, which does not fit 4 ranks. Set launcher\.nproc_per_node=2"),
        (("parallel=mesh", "parallel.tensor=auto"), r"only one of them can be auto"),
        (("parallel=fsdp", "parallel.replicate=3"), r"replicate 3 is 3, which does not fit 4 ranks"),
        (
            ("parallel=fsdp", "precision=amp", "precision.level=O2"),
            r"half-precision weights.* does not work with parallel=f",
        ),
        (
            ("parallel=zero1", "precision=amp", "precision.level=O2"),
            r"parallel=zero1 .*but not of their fp32 copies",
        ),
        (
            ("parallel=tensor", "trainer.compile=default"),
            r"trainer\.compile without trainer\.compile_units does not .* Set trainer\.compile_units=\[auto\]",
        ),
        (("parallel=fsdp", "trainer.channels_last=true"), r"trainer\.channels_last does not work with parallel=fsdp"),
        (("parallel=pipeline", "parallel.schedule=interleaved"), r"\(4 pipeline\).* Set parallel\.stages_per_rank=2"),
        (("parallel=pipeline", "parallel.schedule=1f1b"), r"Set trainer\.grad_accumulation to at least"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_key_to_set(overrides, words):
    with pytest.raises(ConfigurationError, match=words):
        config(*overrides, *FOUR)


@pytest.mark.parametrize(
    ("overrides", "installed", "lowest"),
    [
        (("parallel=fsdp",), "2.6.0+cpu", "2.7"),
        (("parallel=mesh", "parallel.tensor=2"), "2.6.0+cpu", "2.7"),
        (("parallel=mesh", "parallel.tensor=2", "parallel.shard=1", "parallel.replicate=2"), "2.6.0+cpu", None),
        (("parallel=tensor",), "2.6.0+cpu", None),
        (("parallel=zero1",), "2.6.0+cpu", None),
        (("parallel=pipeline",), "2.9.1", "2.10"),
        (("parallel=pipeline",), "2.10.0", None),
        (("parallel=mesh", "parallel.pipeline=2", "parallel.shard=2"), "2.9.1", "2.10"),
        (("parallel=fsdp",), "3.0.0", None),
    ],
)
def test_a_torch_that_is_too_old_is_refused_with_the_one_to_get(monkeypatch, overrides, installed, lowest):
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: installed if name == "torch" else real(name))
    words = (
        rf"it needs torch {lowest} or newer, and {re.escape(installed)} is installed\. Install one with: pip install"
    )
    with nullcontext() if lowest is None else pytest.raises(Unavailable, match=words):
        config(*overrides, *FOUR)


def test_every_refusal_has_a_reason_and_a_remedy():
    for refusal in REFUSALS:
        assert refusal.reason
        assert refusal.remedy.startswith("Set ")
        assert refusal.way in ("any", *Layout._fields)
