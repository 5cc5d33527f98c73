"""What Apex's options are refused together with, each with what to do instead."""

import pytest

from manyheads.runner.config.lookup import options
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from tests import apex_library
from tests.in_process import config

FUSED = [f"optimizer={name}" for name in options("optimizer") if name.startswith("fused_")]
OPTIONS = ["precision=apex", "parallel=apex", *FUSED]
O2 = ["precision=apex", "precision.opt_level=O2"]


def composed(*overrides: str) -> dict:
    return config("data=synthetic", *overrides)


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("option", OPTIONS)
def test_goes_with_gpus(option):
    assert composed(option)["trainer"]["device"] == "cuda"


@pytest.mark.usefixtures("apex", "library")
@pytest.mark.parametrize("parallel", ["single", "ddp", "apex", "horovod"])
@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_the_precision_goes_with_each_strategy(parallel, level):
    composed("precision=apex", f"precision.opt_level={level}", f"parallel={parallel}")


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("option", OPTIONS)
def test_cpus_are_refused(option):
    with pytest.raises(ConfigurationError, match=rf"^trainer\.device=cpu: {option} works on GPUs .* or use "):
        composed(option, "trainer.device=cpu")


@pytest.mark.skipif(apex_library.IS_REAL, reason="Apex works here")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("gpus", [0, 2])
def test_without_apex_it_is_refused_with_what_to_do(monkeypatch, option, gpus):
    monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
    message = rf"^{option}: .*git clone --branch 25\.05 .*\. Or use .*\.$"
    with pytest.raises(ConfigurationError, match=message) as caught:
        composed(option)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["precision=apex", "parallel=dp"], r"^precision=apex .* parallel=dp\. Set parallel to single, ddp, "),
        (["precision=apex", "trainer.compile=default"], r"^trainer\.compile=default: precision=apex .*compile=none"),
        (["parallel=apex", "trainer.compile=default"], r"^trainer\.compile=default: parallel=apex .*compile=none, or"),
        (["precision=apex", "precision.master_weights=true"], r"^precision\.master_weights=true: .* null, or .*O2"),
        (["precision=apex", "precision.keep_batchnorm_fp32=false"], r"^precision\.keep_batchnorm_fp32=false: .*O1"),
        (["precision=apex", "precision.opt_level=O4"], r"^precision\.opt_level=\"O4\" .*Allowed: O0, O1, O2, O3"),
        (["precision=apex", "precision.loss_scale=0"], r"^precision\.loss_scale=0 .* above 0 or dynamic or null"),
        (["precision=apex", "+precision.level=O2"], r"^precision\.level is a key of precision=amp only"),
        ([*O2, "optimizer=fused_novograd"], r"^precision\.opt_level=O2: FusedNovoGrad .* Set precision\.opt_level=O1"),
        *((["precision=fp64", option], rf"^{option}: .* not support fp64.*or precision=fp32") for option in FUSED),
        (["optimizer=fused_novograd", "optimizer.norm_type=1"], r"^optimizer\.norm_type=1 .* Allowed: 2 or 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_is_refused(overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        composed(*overrides)
