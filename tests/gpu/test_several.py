"""What needs two GPUs: NCCL between ranks, and replicas. Where there is one, `make test-gpu` says so."""

import sys

import pytest

from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, execute
from tests.gpu.conftest import NORMALIZED, TINY
from tests.gpu.test_features import FP16, SAME, digest, losses, rounding

TWO = ("parallel=ddp", "parallel.backend=nccl", "launcher.nproc_per_node=2")
DETERMINISTIC = "trainer.deterministic=true"


@pytest.mark.gpu("two ranks over NCCL compute what one does", gpus=2)
@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
@pytest.mark.parametrize(
    "options",
    [
        ("precision=fp64",),
        ("precision=fp32",),
        (*FP16,),
        ("precision=bf16",),
        ("trainer.grad_accumulation=2",),
        ("trainer.clip_norm=1",),
        ("parallel.compression=bf16",),
        ("trainer.compile=default",),
    ],
    ids=" ".join,
)
def test_ranks(train, launcher, options):
    own = [option for option in options if not option.startswith("parallel.")]
    single, both = train(*own, name="single"), train(*TWO, f"launcher={launcher}", *options, name="both")
    exact = 1e-9 if "precision=fp64" in options else rounding(options)
    assert losses(both) == pytest.approx(losses(single), rel=exact)


@pytest.mark.gpu("SyncBatchNorm over two ranks is one rank's BatchNorm", gpus=2)
def test_sync_batchnorm(train):
    whole = (*TWO, "parallel.sync_batchnorm=true")
    single, both = train(*NORMALIZED, name="single"), train(*NORMALIZED, *whole, name="both")
    assert losses(both) == pytest.approx(losses(single), rel=SAME)


@pytest.mark.gpu("two replicas of DataParallel", gpus=2)
@pytest.mark.parametrize("options", [(), FP16], ids=["fp32", "amp"])
def test_replicas(train, options):
    single, replicas = train(*options, name="single"), train("parallel=dp", *options, name="dp")
    assert losses(replicas) == pytest.approx(losses(single), rel=rounding(options))


@pytest.mark.gpu("resumed on one rank what two began", gpus=2)
def test_other_ranks(train, tmp_path):
    whole = train(*TWO, "precision=fp64", DETERMINISTIC, name="whole")
    begun = train(*TWO, "precision=fp64", DETERMINISTIC, "trainer.stop_after=10", name="begun")
    rest = (f"checkpoint.resume={begun.last_checkpoint}", "precision=fp64", DETERMINISTIC)
    assert losses(train(*rest, name="rest"))[-1] == pytest.approx(losses(whole)[-1], rel=1e-9)


@pytest.mark.gpu("two jobs of a sweep at once, on GPUs of their own", gpus=2)
def test_jobs_at_once(tmp_path):
    options = ("seed=1,2", *TINY, DETERMINISTIC, "hydra.launcher.jobs=2", f"hydra.sweep.dir={tmp_path}")
    done = execute(sys.executable, str(RUN), "-m", *options, cwd=tmp_path, timeout=240)
    assert done.code == 0, done.err
    assert len({digest(RunFolder(tmp_path / job)) for job in "01"}) == 2
