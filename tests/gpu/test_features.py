"""Everything that needs CUDA, once each, by the real command in tiny runs; `make test-gpu` starts them."""

import csv
import json
import sys
from contextlib import closing

import pytest
import torch

from manyheads.runner.checkpoint.rank.host_copies import HostCopies
from manyheads.runner.machine import hardware
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, execute
from tests.gpu.conftest import NORMALIZED, RESNET, TINY, TWO_UPDATES
from tests.in_process import attempt, config

DETERMINISTIC = "trainer.deterministic=true"
# A scale at which nothing overflows: the first updates would be skipped otherwise, as test_overflow wants it.
FP16 = ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024")
PRECISIONS = [
    pytest.param(("precision=fp32",), id="fp32"),
    pytest.param(FP16, id="amp"),
    pytest.param((*FP16, "precision.level=O2"), id="amp, O2"),
]
NCCL = ("parallel=ddp", "parallel.backend=nccl", "launcher.nproc_per_node=1")
APEX = (("precision", "apex"),)
SAME = 1e-4  # of a loss in fp32: rounding changes it by 1e-6 at most where training is not chaotic
# Half a unit of rounding, relative to a loss; NORMALIZED on a CPU differs by a twentieth of that, TINY by a third.
ROUNDED = {"float16": 2.4e-4, "bfloat16": 2e-3}


def rounding(overrides: tuple[str, ...]) -> float:
    """By how much losses with and without these overrides may differ for rounding alone, relative to a loss."""
    text = " ".join(overrides)
    if "bf16" in text or "bfloat16" in text or "experiment=fast" in text:
        return ROUNDED["bfloat16"]
    return ROUNDED["float16"] if "float16" in text or "tf32" in text else SAME


def losses(folder: RunFolder) -> list[float]:
    with open(folder.steps, newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def checkpoint(folder: RunFolder) -> dict:
    return torch.load(folder.last_checkpoint, map_location="cpu", weights_only=True)


def digest(folder: RunFolder) -> str:
    return folder.read_result()["weights_sha256"]


@pytest.mark.gpu("the same GPUs as torch counts")
def test_count():
    assert len(hardware.gpu_names()) == torch.cuda.device_count()


@pytest.mark.gpu("the same losses as on the CPU")
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", SAME), ("fp64", 1e-9)])
def test_cpu(train, tmp_path, precision, tolerance):
    on_gpu = losses(train(f"precision={precision}"))
    folder = RunFolder(tmp_path / "cpu")
    overrides = [o for o in TINY if o != "trainer.device=cuda"] + ["trainer.device=cpu", f"precision={precision}"]
    command = (sys.executable, str(RUN), *overrides, f"hydra.run.dir={folder.path}")
    done = execute(*command, cwd=tmp_path)
    assert done.code == 0, done.err
    assert on_gpu == pytest.approx(losses(folder), rel=tolerance)
    assert on_gpu[-1] < 0.98 * on_gpu[0]  # otherwise no gradient would be compared


@pytest.mark.gpu("one process and one rank compute the same")
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("parallel=dp",), id="dp"),
        pytest.param((*NCCL, "launcher=inline"), id="ddp, inline"),
        pytest.param((*NCCL, "launcher=spawn"), id="ddp, spawn"),
        pytest.param((*NCCL, "launcher=torchrun"), id="ddp, torchrun"),
        pytest.param((*NCCL, "parallel.compression=fp16"), id="ddp, fp16 compression"),
        pytest.param((*NCCL, "trainer.grad_accumulation=2"), id="ddp, accumulation"),
    ],
)
def test_parallel(train, overrides):
    single, other = train(name="single"), train(*overrides, name="other")
    assert losses(other) == pytest.approx(losses(single), rel=SAME)


@pytest.mark.gpu("copies of a checkpoint in pinned memory, which is kept")
def test_host_copies():
    draw = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(2, 3, 4, 4, device="cuda", generator=draw).to(memory_format=torch.channels_last)
    tensors = [images, images[:, :, 1:3], torch.randn(2**22, device="cuda", generator=draw), images.bfloat16()]
    memory = HostCopies(2**30, pytest.fail)
    for factor in (1, 2):
        originals = [tensor * factor for tensor in tensors]
        copies = memory.of(originals, pytest.fail)
        assert all(copy.is_pinned() for copy in copies)
        assert all(torch.equal(copy, tensor.cpu()) for copy, tensor in zip(copies, originals, strict=True))


@pytest.mark.gpu("SyncBatchNorm")
def test_sync_batchnorm(train):
    options = (*NORMALIZED, "parallel=ddp", "launcher=inline")
    plain, synchronized = train(*options, name="plain"), train(*options, "parallel.sync_batchnorm=true", name="sync")
    assert losses(synchronized) == pytest.approx(losses(plain), rel=SAME)


PRECISE = [
    pytest.param(("precision=tf32",), id="tf32"),
    pytest.param(("precision=bf16",), id="bf16"),
    pytest.param(FP16, id="amp, float16"),
    pytest.param(("precision=amp", "precision.dtype=bfloat16"), id="amp, bfloat16"),
    pytest.param((*FP16, "precision.level=O2"), id="amp, O2, float16"),
    pytest.param(("precision=amp", "precision.level=O2", "precision.dtype=bfloat16"), id="amp, O2, bfloat16"),
    pytest.param((*FP16, "precision.level=O2", "parallel=dp"), id="amp, O2, dp"),
    pytest.param((*FP16, "precision.level=O2", "parallel=ddp", "launcher=inline"), id="amp, O2, ddp"),
    pytest.param((*FP16, "precision.level=O2", "trainer.channels_last=true"), id="amp, O2, channels_last"),
]


CLIPPED = ("trainer.grad_accumulation=2", "trainer.clip_norm=1", "data.batch_size=64")


@pytest.mark.gpu("precision near fp32")
@pytest.mark.parametrize("shared", [(), CLIPPED], ids=["", "accumulation, clipping"])
@pytest.mark.parametrize("overrides", PRECISE)
def test_precision(train, overrides, shared):
    options = (*NORMALIZED, *shared)
    plain, half = train(*options, name="fp32"), train(*options, *overrides, name="half")
    assert losses(half) == pytest.approx(losses(plain), rel=rounding(overrides))
    assert losses(plain)[-1] < 0.98 * losses(plain)[0]  # otherwise no gradient would be compared
    assert {value.dtype for value in checkpoint(half)["model"].values()} == {torch.float32, torch.int64}


@pytest.mark.gpu("a ResNet's precision near fp32, in the two updates before chaos")
@pytest.mark.parametrize("overrides", PRECISE)
def test_precision_of_a_resnet(train, overrides):
    plain, half = train(*TWO_UPDATES, name="fp32"), train(*TWO_UPDATES, *overrides, name="half")
    assert losses(half) == pytest.approx(losses(plain), rel=0.02)
    assert losses(half)[0] == pytest.approx(losses(plain)[0], rel=2.5 * rounding(overrides))


@pytest.mark.gpu("batches made on the GPU")
def test_images_on_the_device(train):
    given = (DETERMINISTIC, "data=synthetic", "data.augment=crop_flip", "data.flip=alternating", "data.padding=reflect")
    assert digest(train(*given, "data.on_device=true", name="there")) == digest(train(*given, name="here"))


@pytest.mark.gpu("airbench94, but for CIFAR-10")
def test_airbench94(train):
    data = ("data=synthetic", "data.train_samples=320", "data.val_samples=64")
    folder = train(
        "experiment=cifar10_airbench94", "model=airbench", *data, "trainer.compile=none", "optimizer.lr=0.24"
    )
    assert losses(folder)[-1] < losses(folder)[0]


@pytest.mark.gpu("overflows are left out, by the gradient scaler")
@pytest.mark.parametrize("fused", ["false", "true"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_overflow(train, level, fused):
    scale = 2.0**30
    own = (f"precision.level={level}", f"precision.init_scale={scale}", f"optimizer.fused={fused}")
    options = (*FP16[:2], *own)
    run = train(*options, "trainer.max_steps=40")
    assert 1 <= checkpoint(run)["precision"]["scale"] < scale
    assert losses(run)[-1] < 2.35  # of ten classes


@pytest.mark.gpu("fused as not fused")
@pytest.mark.parametrize("precision", PRECISIONS[:2])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_fused(train, optimizer, precision):
    rate = () if optimizer == "sgd" else ("optimizer.lr=0.001",)
    options = (f"optimizer={optimizer}", *rate, *precision)
    plain, fused = train(*options, "optimizer.fused=false", name="plain"), train(*options, name="fused")
    assert losses(fused) == pytest.approx(losses(plain), rel=1e-3)


@pytest.mark.gpu("trainer.compile=default")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_compile(train, precision):
    plain, compiled = train(*precision, name="plain"), train(*precision, "trainer.compile=default", name="compiled")
    assert losses(compiled) == pytest.approx(losses(plain), rel=rounding(precision))


@pytest.mark.gpu("torch.compile with CUDA graphs, and autotuned")
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("strategy", [("parallel=single",), (*NCCL, "launcher=inline")], ids=lambda words: words[0])
def test_compile_modes(train, mode, strategy):
    plain, compiled = train(name="plain"), train(*strategy, f"trainer.compile={mode}", name="compiled")
    assert losses(compiled) == pytest.approx(losses(plain), rel=SAME)


@pytest.mark.gpu("experiment=fast")
@pytest.mark.parametrize("strategy", [("parallel=single",), (*NCCL, "launcher=inline")], ids=lambda words: words[0])
def test_fast(train, strategy):
    plain, fast = train(*TWO_UPDATES, name="plain"), train(*TWO_UPDATES, *strategy, "experiment=fast", name="fast")
    assert losses(fast) == pytest.approx(losses(plain), rel=0.02)
    assert losses(fast)[0] == pytest.approx(losses(plain)[0], rel=5e-3)


@pytest.mark.gpu("grey images from loader processes: one channel is pinned and sent, three arrive")
def test_grey(train):
    grey = ("data=digits", "data.image_size=32")
    plain, pinned = (
        train(*grey, DETERMINISTIC, name="plain"),
        train(*grey, DETERMINISTIC, "data.num_workers=2", name="p"),
    )
    assert digest(pinned) == digest(plain)


@pytest.mark.gpu("throughput without compilation")
def test_warm_up_is_no_throughput(train):
    """The first pass compiles for seconds; all that follow take milliseconds."""
    compiled = train("trainer.compile=default", "trainer.max_steps=60", "trainer.log_every=5")
    with open(compiled.steps, newline="") as file:
        speeds = sorted(float(row["samples_per_second"]) for row in csv.DictReader(file))
    assert compiled.read_result()["samples_per_second"] > speeds[len(speeds) // 2] / 10  # on a busy machine too


TOKENS = (  # which vary in number from batch to batch
    *("task=language_model", "data=stdlib_text", "data.max_tokens=40000", "data.block_size=32"),
    *("model=gpt", "model.depth=2", "model.heads=2", "trainer.grad_accumulation=2"),
)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.gpu("no wait for the GPU in an update")
@pytest.mark.parametrize(
    "options", [(), ("precision=bf16",), FP16, (*FP16, "optimizer=adamw", "optimizer.lr=0.001"), TOKENS], ids=" ".join
)
def test_nobody_waits_in_an_update(tmp_path, options):
    """torch raises where an operation waits for the GPU; SGD with a gradient scaler did, at each step."""
    run = attempt(tmp_path, config(*TINY, *options))
    with closing(run.trainer) as trainer:
        example = trainer.train.example()
        trainer.update.model.train()
        for number in range(7):
            if number == 5:
                torch.cuda.set_sync_debug_mode("error")
            try:
                trainer.update([example], number=number, wants_norm=False)
            finally:
                if number >= 5:
                    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu("clocks, power and temperature in gpu.csv")
def test_gpu_state(train):
    with open(train(*RESNET, "trainer.max_steps=300", name="load").gpu, newline="") as file:
        row = list(csv.DictReader(file))[-1]
    if "MIG" not in hardware.gpu_names()[0]:
        assert 100 < int(row["sm_clock_mhz"]) < 4000
        assert 10 < float(row["power_w"]) < 2000
        assert 10 < int(row["temperature_c"]) < 110


@pytest.mark.gpu("loader processes, pinned memory")
def test_loader(train):
    plain, pinned = train(DETERMINISTIC, name="plain"), train(DETERMINISTIC, "data.num_workers=2", name="pinned")
    assert digest(pinned) == digest(plain)


@pytest.mark.gpu("deterministic: twice the same weights")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_deterministic(train, precision):
    options = (*RESNET, *precision, DETERMINISTIC)
    assert digest(train(*options, name="one")) == digest(train(*options, name="two"))


@pytest.mark.gpu("reproduce: deterministic runs are identical, others equal")
@pytest.mark.parametrize(
    ("more", "verdicts"), [((DETERMINISTIC,), "identical"), ((), "identical|equal within tolerance")]
)
def test_reproduce(train, tmp_path, more, verdicts):
    past = train(*RESNET, *more, "checkpoint.keep=3")
    done = execute(sys.executable, "-m", "manyheads.runner", "reproduce", str(past.path), cwd=tmp_path, timeout=280)
    assert done.code == 0, done.out + done.err
    (result,) = tmp_path.glob("outputs/*/*/result.json")
    assert json.loads(result.read_text())["reproduction"]["verdict"] in verdicts.split("|")


@pytest.mark.gpu("an operation without a deterministic form is named")
def test_named_operation(tmp_path):
    own = ("model=custom", "model._target_=tests.loop.test_determinism.NotDeterministic", "data.image_size=8")
    command = (sys.executable, str(RUN), *own, DETERMINISTIC, "trainer.device=cuda", "data=synthetic")
    done = execute(*command, cwd=tmp_path)
    assert done.code == 2, done.out + done.err
    assert "no deterministic implementation of put_" in done.err


@pytest.mark.gpu("parity: the strategies on a GPU take the same steps")
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_parity(tmp_path, precision):
    options = ("parallel=dp,ddp", "launcher.nproc_per_node=1", "--steps", "5", f"precision={precision}")
    done = execute(sys.executable, "-m", "manyheads.runner", "parity", *options, cwd=tmp_path, timeout=280)
    assert done.code == 0, done.out + done.err


@pytest.mark.gpu("peak memory follows the batch")
def test_memory(train):
    small, large = (train(*RESNET, f"data.batch_size={size}", name=str(size)).read_result() for size in (8, 160))
    assert 0 < small["peak_memory_mb"][0] < large["peak_memory_mb"][0]


@pytest.mark.gpu("gpu.csv: load and memory by the second")
def test_gpu_load(train):
    with open(train(*RESNET, "trainer.max_steps=300", name="load").gpu, newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert {row["device"] for row in rows} == {"0"}
    assert max(int(row["memory_used_mb"]) for row in rows) > 0


@pytest.mark.gpu("no CUDA context where warm ranks are forked from: a sweep of several jobs")
def test_sweep(tmp_path):
    ways = (*NCCL, "launcher=spawn", "seed=1,2,1", *TINY, DETERMINISTIC, f"hydra.sweep.dir={tmp_path}")
    done = execute(sys.executable, str(RUN), "-m", *ways, cwd=tmp_path, timeout=240)
    assert done.code == 0, done.err
    first, other, again = (digest(RunFolder(tmp_path / job)) for job in "012")
    assert first == again != other


@pytest.mark.gpu("killed and resumed: the same weights")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_resume(train, tmp_path, precision):
    target = ("model=custom", "model._target_=tests.launchers.faulty.Faulty", "+model.rank=0", "+model.step=15")
    options = (*target, *precision, DETERMINISTIC, "checkpoint.every=6")
    whole = train(*options, "+model.how=nothing", name="whole")
    folder = RunFolder(tmp_path / "killed")
    fault = ("+model.how=kill", f"+model.once={tmp_path / 'failed'}", "launcher=spawn")
    rest = (o for o in TINY if not o.startswith("model."))
    command = (sys.executable, str(RUN), *options, *fault, *rest, f"hydra.run.dir={folder.path}")
    assert execute(*command, cwd=tmp_path).code == 1
    done = execute(sys.executable, "-m", "manyheads.runner", "resume", str(folder.path), cwd=tmp_path)
    assert done.code == 0, done.err
    assert digest(folder) == digest(whole)


@pytest.mark.gpu("Horovod on CUDA tensors", needs=(("parallel", "horovod"), ("launcher", "horovodrun")))
@pytest.mark.parametrize("precision", PRECISIONS)
def test_horovod(train, precision):
    horovod = ("parallel=horovod", "launcher=horovodrun", "launcher.nproc_per_node=1")
    single, other = train(*precision, name="single"), train(*precision, *horovod, name="horovod")
    assert losses(other) == pytest.approx(losses(single), rel=1e-3)


@pytest.mark.gpu("Apex's amp", needs=APEX)
@pytest.mark.parametrize(
    "options",
    [
        ("precision.opt_level=O0",),
        ("precision.opt_level=O1",),
        ("precision.opt_level=O2",),
        ("precision.opt_level=O3", "precision.keep_batchnorm_fp32=true"),
    ],
    ids=lambda options: options[0].rpartition("=")[2],
)
def test_apex(train, options):
    plain, half = train(*NORMALIZED, name="fp32"), train(*NORMALIZED, "precision=apex", *options)
    assert losses(half) == pytest.approx(losses(plain), rel=5e-3)


@pytest.mark.gpu("Apex's amp and precision=amp", needs=APEX)
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_native_and_apex(train, level):
    native = train(*NORMALIZED, *FP16, f"precision.level={level}", name="native")
    apex = train(*NORMALIZED, "precision=apex", f"precision.opt_level={level}", name="apex")
    assert losses(native) == pytest.approx(losses(apex), rel=5e-3)


@pytest.mark.gpu("Apex's DistributedDataParallel", needs=(("parallel", "apex"),))
def test_parallel_apex(train):
    single, other = train(name="single"), train("parallel=apex", "launcher.nproc_per_node=1", name="apex")
    assert losses(other) == pytest.approx(losses(single), rel=1e-3)


@pytest.mark.gpu("Apex's fused optimizers", needs=(("optimizer", "fused_sgd"),))
@pytest.mark.parametrize("optimizer", ["fused_sgd", "fused_adam", "fused_lamb", "fused_novograd"])
def test_apex_optimizers(train, optimizer):
    fused = losses(train(f"optimizer={optimizer}", "optimizer.lr=0.001", name="fused"))
    native = {"fused_sgd": "sgd", "fused_adam": "adamw"}.get(optimizer)
    if native:
        plain = losses(train(f"optimizer={native}", "optimizer.lr=0.001", name="plain"))
        assert fused == pytest.approx(plain, rel=0.01)
    assert all(0 < loss < 2.5 for loss in fused)
