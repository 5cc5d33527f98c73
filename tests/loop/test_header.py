import pytest
import torch
from torch import nn
from torchvision.models import resnet18, vit_b_16

from manyheads.runner.loop import header, header_rows
from manyheads.runner.loop.header import unused_speedups
from manyheads.runner.loop.header_rows import about, convolves, emulated, length
from manyheads.runner.loop.train_settings import TrainSettings
from manyheads.runner.model.model_option import ModelOption
from tests.in_process import typed
from tests.torch_versions import from_torch


def test_what_the_user_says_of_a_run_is_shown_where_he_says_it():
    said = about("first", ["baseline", "small"], "as in the paper\x1b[2J")
    assert said == {"name": "first", "tags": "baseline, small", "notes": "as in the paper\\x1b[2J"}
    assert about(None, [], None) == {}


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ((), "precision=bf16, trainer.channels_last=true, trainer.compile=default are usually faster (all of them: "),
        (("precision=amp", "trainer.compile=reduce-overhead"), "trainer.channels_last=true is usually faster"),
        (("experiment=fast",), None),
    ],
)
def test_on_a_gpu_it_says_what_would_be_faster(overrides, says):
    run = typed(*overrides)
    assert unused_speedups(run, convolves=False) == {}
    run = run.changed(trainer={"device": "cuda"})
    assert unused_speedups(run, convolves=True).get("tip", "").startswith(says or "")


@pytest.mark.parametrize(
    ("overrides", "convolves", "says"),
    [
        ((), False, "precision=bf16, trainer.compile=default are usually faster"),
        pytest.param(("parallel=fsdp",), True, "precision=bf16 is usually faster", marks=from_torch("2.7")),
        pytest.param(("parallel=fsdp", "precision=bf16"), True, None, marks=from_torch("2.7")),
        (
            ("trainer.recompute=[auto]",),
            True,
            "precision=bf16, trainer.channels_last=true, trainer.compile=default are usually faster (all of them: "
            "experiment=fast)",
        ),
    ],
)
def test_it_recommends_nothing_that_is_refused_or_does_nothing(overrides, convolves, says):
    run = typed(*overrides).changed(trainer={"device": "cuda"})
    assert unused_speedups(run, convolves=convolves).get("tip") == says


@pytest.mark.parametrize(
    ("overrides", "instructions", "convolves", "says"),
    [
        ((), "AMX", True, "precision=bf16 is usually faster: this processor has AMX"),
        ((), None, True, None),
        ((), "AMX", False, None),
        (("precision=bf16",), "AMX", True, None),
        (("precision=fp64",), "AMX", True, None),
    ],
)
def test_on_a_cpu_it_says_it_where_it_was_measured(monkeypatch, overrides, instructions, convolves, says):
    monkeypatch.setattr(header, "bfloat16", lambda: instructions)
    assert unused_speedups(typed("trainer.device=cpu", *overrides), convolves=convolves).get("tip") == says


def test_what_is_mostly_convolutions():
    with torch.device("meta"):
        assert [convolves(make()) for make in (resnet18, vit_b_16, lambda: nn.Linear(2, 2), nn.Identity)] == [
            *(True, False, False, False)
        ]


@pytest.mark.parametrize(
    ("overrides", "instructions", "says"),
    [
        (("precision=bf16",), None, "usually slower than precision=fp32: this processor has no bfloat16 instructions"),
        (("precision=amp",), None, "usually slower than precision=fp32"),
        (("precision=bf16",), "AMX", ""),
        (("precision=amp", "precision.dtype=float16"), None, ""),
        ((), None, ""),
    ],
)
def test_on_a_cpu_that_emulates_bfloat16_it_says_so(monkeypatch, overrides, instructions, says):
    monkeypatch.setattr(header_rows, "bfloat16", lambda: instructions)
    run = typed("trainer.device=cpu", *overrides)
    assert emulated(run.precision.autocast(on_gpus=False), run.trainer.device).get("warning", "").startswith(says)
    assert bool(emulated(run.precision.autocast(on_gpus=False), run.trainer.device)) is bool(says)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ((), "4,050 updates = 90 epochs x 45 (trainer.epochs)"),
        (("trainer.epochs=1",), "45 updates = 1 epoch x 45 (trainer.epochs)"),
        (("trainer.max_steps=500",), "500 updates (trainer.max_steps); an epoch has 45"),
        (("trainer.max_steps=5000",), "5,000 updates (trainer.max_steps); an epoch has 45"),
        (
            ("trainer.max_steps=5000", "trainer.epochs=90"),
            "4,050 updates = 90 epochs x 45 (trainer.epochs; trainer.max_steps=5000 is not reached)",
        ),
        (("trainer.stop_after=1",), "1 update of 4,050 (trainer.stop_after)"),
        (("trainer.stop_after=5", "trainer.max_steps=9"), "5 updates of 9 (trainer.stop_after)"),
        (
            ("trainer.stop_after=9", "trainer.max_steps=5"),
            "5 updates (trainer.max_steps; trainer.stop_after=9 is not reached); an epoch has 45",
        ),
    ],
)
def test_how_long_a_run_will_be(overrides, says):
    trainer = typed("data=synthetic", *overrides).trainer
    limits = {"max_steps": trainer.max_steps, "stop_after": trainer.stop_after}
    assert length(TrainSettings.of(trainer, 45), 45, **limits) == says


@pytest.mark.parametrize(
    ("section", "title"),
    [
        ({"_target_": "manyheads.runner.model.rank.mlp.MLP", "name": "mlp"}, "mlp"),
        ({"_target_": "/home/me/net.py:Net", "name": "Net"}, "Net in net.py"),  # as typed, model=net.py:Net
        ({"_target_": "/home/me/net.py:Net", "name": "custom"}, "Net in net.py"),
        ({"_target_": "proj.model.Net", "name": "custom"}, "Net in proj.model"),
        ({"_target_": "proj.model.Net", "name": "wide"}, "wide, Net in proj.model"),
    ],
)
def test_a_class_of_the_users_own_is_named(section, title):
    assert ModelOption(section).title == title
