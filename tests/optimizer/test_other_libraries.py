"""Optimizers of other libraries, by optimizer=custom: resumed to the bit, or refused."""

import pytest

from manyheads.runner.errors import ConfigurationError
from tests.in_process import small, train

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, of many kinds
MODEL = ("model=custom", "model._target_=tests.zoo.Rich", "checkpoint.every=13", "trainer.epochs=1")
BITSANDBYTES = ("AdamW8bit", "Lion8bit", "AdEMAMix8bit", "RMSprop8bit")
PYTORCH_OPTIMIZER = ("SOAP", "CAME", "Prodigy", "Shampoo", "AdaBelief", "MARS")


def options(target: str) -> tuple[str, ...]:
    return (*MODEL, "optimizer=custom", f"optimizer._target_={target}", "optimizer.lr=0.003")


def resumes_to_the_bit(folder, *config: str) -> bool:
    whole = train(folder / "whole", small(*config))
    train(folder / "cut", small(*config, "trainer.stop_after=13"))
    resumed = train(folder / "cut", small(*config))
    return resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]


@pytest.mark.needs("bitsandbytes")
@pytest.mark.parametrize("name", BITSANDBYTES)
def test_of_eight_bits(tmp_path, name):
    eight_bits = "+optimizer.min_8bit_size=16"  # this model's tensors are small
    assert resumes_to_the_bit(tmp_path, *options(f"bitsandbytes.optim.{name}"), eight_bits)


@pytest.mark.needs("pytorch_optimizer")
@pytest.mark.parametrize("name", PYTORCH_OPTIMIZER)
def test_of_pytorch_optimizer(tmp_path, name):
    assert resumes_to_the_bit(tmp_path, *options(f"pytorch_optimizer.{name}"))


@pytest.mark.needs("pytorch_optimizer")
@pytest.mark.parametrize("name", ["ScheduleFreeAdamW", "ScheduleFreeSGD", "SPlus"])
def test_one_with_other_weights_for_evaluations_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match=rf"pytorch_optimizer.{name} trains other weights than it evaluates"):
        train(tmp_path, small(*options(f"pytorch_optimizer.{name}")))
