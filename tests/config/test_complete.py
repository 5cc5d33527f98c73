import pytest

from manyheads.runner.config import saved
from manyheads.runner.config.freeze import checked
from manyheads.runner.config.lookup import options, unavailable
from manyheads.runner.config.schema import check
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine import hardware
from manyheads.runner.option.run_config import RunConfig
from tests.composing import composed
from tests.in_process import completed_for_here as complete
from tests.in_process import config as frozen_config
from tests.in_process import ranks, typed
from tests.tail import tail


def config(*overrides):
    return check(composed(*overrides))


@pytest.fixture
def machine(monkeypatch):
    """Decide as on a machine with so many GPUs and cores."""

    def pretend(*, gpus: int, cores: int = 8) -> None:
        monkeypatch.setattr(hardware, "gpu_names", lambda: ["Some GPU"] * gpus)
        monkeypatch.setattr(hardware, "cpu_cores", lambda: cores)

    pretend(gpus=0)
    return pretend


@pytest.mark.parametrize(
    ("gpus", "overrides", "device", "count", "threads"),
    [
        (0, [], "cpu", 1, "auto:8"),
        (0, ["parallel=dp"], "cpu", 1, "auto:8"),
        (0, ["parallel=ddp"], "cpu", 2, "auto:4"),
        (0, ["parallel=ddp", "launcher=inline"], "cpu", 1, "auto:8"),
        (
            0,
            ["parallel=ddp", "launcher=torchrun", "launcher.nproc_per_node=3", "data.batch_size=9"],
            "cpu",
            3,
            "auto:2",
        ),
        (0, ["parallel=ddp", "launcher.nproc_per_node=16"], "cpu", 16, 1),
        (4, [], "cuda", 1, 8),
        (4, ["parallel=ddp"], "cuda", 4, 2),
        (4, ["parallel=ddp", "trainer.device=cpu"], "cpu", 2, "auto:4"),
        (0, ["launcher.threads_per_rank=measure"], "cpu", 1, "measure:8"),
        (0, ["launcher.threads_per_rank=auto:3"], "cpu", 1, "auto:3"),
        (0, ["launcher.threads_per_rank=measure:1"], "cpu", 1, 1),
        (0, ["launcher.threads_per_rank=5"], "cpu", 1, 5),
        (4, ["launcher.threads_per_rank=measure"], "cuda", 1, 8),
        (4, ["parallel=ddp", "launcher.nproc_per_node=2"], "cuda", 2, 4),
        (4, ["parallel=ddp", "launcher.threads_per_rank=7"], "cuda", 4, 7),
        (4, ["precision=tf32"], "cuda", 1, 8),
        (4, ["parallel=dp", "parallel.device_ids=[0,3]", "parallel.output_device=3"], "cuda", 1, 8),
    ],
)
def test_auto_is_decided(machine, gpus, overrides, device, count, threads):
    machine(gpus=gpus)
    done = complete(config(*overrides))
    assert (done["trainer"]["device"], ranks(done), done["launcher"]["threads_per_rank"]) == (device, count, threads)
    assert "auto" not in (done["trainer"]["device"], *done["launcher"].values())


@pytest.mark.parametrize(
    ("overrides", "policy"),
    [
        ([], "default"),
        (["parallel=ddp"], "default"),
        (["parallel=ddp", "launcher.nproc_per_node=16"], "brief"),
        (["launcher.threads_per_rank=8"], "default"),
        (["launcher.threads_per_rank=9"], "brief"),
        (["parallel=ddp", "launcher.threads_per_rank=5"], "brief"),
        (["parallel=ddp", "launcher.threads_per_rank=5", "launcher.wait_policy=default"], "default"),
        (["launcher.wait_policy=brief"], "brief"),
        (["launcher.wait_policy=active"], "active"),
    ],
)
def test_idle_threads_wait_as_torchs_own_unless_they_outnumber_the_cores(machine, overrides, policy):
    """On free cores anything gentler makes a small model train at a third of the speed."""
    machine(gpus=0)
    assert complete(config(*overrides))["launcher"]["wait_policy"] == policy


@pytest.mark.parametrize(
    ("size", "count", "accumulation", "nearest"),
    [(65, 2, 1, "64 or 66"), (10, 3, 1, "9 or 12"), (10, 2, 3, "6 or 12"), (1, 2, 1, "2"), (3, 2, 2, "4")],
)
def test_an_indivisible_batch_is_refused_with_the_nearest_that_fit(machine, size, count, accumulation, nearest):
    overrides = [
        f"data.batch_size={size}",
        f"launcher.nproc_per_node={count}",
        f"trainer.grad_accumulation={accumulation}",
    ]
    with pytest.raises(ConfigurationError, match=rf"^data\.batch_size={size} .* data\.batch_size={nearest}[.;]"):
        complete(config("parallel=ddp", *overrides))
    for fitting in nearest.split(" or "):
        done = complete(config("parallel=ddp", *overrides, f"data.batch_size={fitting}"))
        assert RunConfig.of(done).batch_per_rank * count * accumulation == int(fitting)


@pytest.mark.parametrize(
    ("gpus", "overrides", "message"),
    [
        (0, ["trainer.device=cuda"], r"^trainer\.device=cuda: .* no NVIDIA GPU .* Set trainer\.device=cpu or auto"),
        (0, ["precision=tf32"], r"^precision=tf32: .* Use precision=fp32"),
        (2, ["precision=tf32", "trainer.device=cpu"], r"^precision=tf32 .* Set trainer\.device=cuda or precision=fp32"),
        (0, ["launcher.nproc_per_node=2"], r"^launcher\.nproc_per_node=2: parallel=single .* or parallel=ddp"),
        (0, ["parallel=dp", "launcher=spawn", "launcher.nproc_per_node=2"], r"=2: parallel=dp runs in one process"),
        (0, ["parallel=ddp", "launcher=inline", "launcher.nproc_per_node=2"], r"=2: launcher=inline .* launcher=spawn"),
        (2, ["parallel=ddp", "launcher.nproc_per_node=3"], r"_node=3: there are more ranks than GPUs \(2 visible\)"),
        (0, ["parallel=ddp", "parallel.backend=nccl"], r"^parallel\.backend=nccl needs GPUs\. Set .*gloo or auto"),
        (0, ["parallel=ddp", "parallel.sync_batchnorm=true"], r"^parallel\.sync_batchnorm=true: .* Set it to false"),
        (0, ["parallel=dp", "trainer.compile=default"], r"^trainer\.compile=default: .* Set trainer\.compile=none"),
        (0, ["parallel=dp", "parallel.device_ids=[0]"], r"^parallel\.device_ids=\[0\].* 0 GPUs can be used"),
        (2, ["parallel=dp", "parallel.device_ids=[0,2]"], r"^parallel\.device_ids=\[0, 2\].* 2 GPUs can be used"),
        (2, ["parallel=dp", "precision=bf16"], r"^precision=bf16: .*float16 on its replicas.* or parallel=ddp"),
        (2, ["parallel=dp", "precision=amp", "precision.dtype=bfloat16"], r"^precision=amp: .* Set .*dtype=float16"),
        (2, ["parallel=dp", "parallel.output_device=2"], r"parallel\.output_device=2: 2 GPUs can be used"),
        (0, ["trainer.evaluate_only=true"], r"^trainer\.evaluate_only=true .* Set checkpoint\.load="),
        (0, ["checkpoint.load=/nowhere/best.pt"], r"^checkpoint\.load=/nowhere/best\.pt: there is no such file"),
        (0, ["checkpoint.resume=/nowhere/last.pt"], r"^checkpoint\.resume=/nowhere/last\.pt: there is no such file"),
        (0, ["checkpoint.resume=a.pt", "checkpoint.load=b.pt"], r"^checkpoint\.resume=a\.pt .* checkpoint\.load=b\.pt"),
        (
            0,
            ["trainer.evaluate_only=true", "checkpoint.load=b.pt", "checkpoint.resume=a.pt"],
            r"^checkpoint\.resume=a\.pt .* trainer\.evaluate_only=true does not\. Set only one",
        ),
        (
            0,
            ["data._target_=manyheads.runner.data.digits.Digit"],
            r"^data\._target_=manyheads\.runner\.data\.digits\.Digit: .* has no Digit",
        ),
        (0, ["data=mnist", "data.download=false", "data.root=/nowhere"], r"^data=mnist: /nowhere/.* set data\.root"),
        (0, ["data=mnist", "data.name=mnits"], r"^data\.name=mnits: allowed are mnist, "),
    ],
)
def test_is_refused(machine, gpus, overrides, message):
    machine(gpus=gpus)
    with pytest.raises(ConfigurationError, match=message):
        complete(config(*overrides))


def test_paths_become_absolute_for_ranks_elsewhere(machine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.pt").touch()
    for key in ("load", "resume"):
        done = complete(config("data=mnist", "data.root=photos", f"checkpoint.{key}=best.pt"))
        assert done["data"]["root"] == str(tmp_path / "photos")
        assert done["checkpoint"][key] == str(tmp_path / "best.pt")


def test_home_is_understood(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "best.pt").touch()
    done = complete(config("data=mnist", "data.root='~/photos'", "checkpoint.load='~/best.pt'"))
    assert done["data"]["root"] == str(tmp_path / "photos")
    assert done["checkpoint"]["load"] == str(tmp_path / "best.pt")


@pytest.mark.parametrize(
    ("group", "option"), [(g, o) for g in ("parallel", "precision", "launcher") for o in options(g)]
)
@pytest.mark.parametrize("gpus", [0, tail(8)])
def test_what_is_unavailable_says_why_and_everything_else_completes(machine, group, option, gpus):
    machine(gpus=gpus)
    if reason := unavailable(group, option):
        with pytest.raises(ConfigurationError) as caught:
            complete(config(f"{group}={option}"))
        assert reason in str(caught.value)
    else:
        complete(config(f"{group}={option}"))


def image_folder(root, *, train, val):
    for split, classes in (("train", train), ("val", val)):
        for name, files in classes.items():
            (root / split / name).mkdir(parents=True)
            for file in files:
                (root / split / name / file).touch()
    return f"data.root={root}"


GOOD = {"cat": ["1.jpg"], "dog": ["1.PNG"]}


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ({}, {}, r"^data\.root=\S+: the folder \S+/train does not exist"),
        (GOOD, {}, r"the folder \S+/val does not exist"),
        (GOOD, {"cat": ["1.jpg"]}, r"must hold the same class folders, but differ in dog\."),
        (GOOD, {**GOOD, "emu": ["1.jpg"]}, r"must hold the same class folders, but differ in emu\."),
        ({"cat": [], "dog": ["1.jpg"]}, GOOD, r"the class folder \S+/train/cat holds no image"),
    ],
)
def test_an_image_folder_with_something_amiss_is_refused(machine, tmp_path, train, val, message):
    root = image_folder(tmp_path, train=train, val=val)
    with pytest.raises(ConfigurationError, match=message):
        complete(config("data=imagefolder", root))


def test_an_image_folder_without_classes_is_refused(machine, tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigurationError, match=r"/train holds no class folder"):
        complete(config("data=imagefolder", f"data.root={tmp_path}"))


@pytest.mark.parametrize(("size", "count", "ranks"), [(64, 3, "2 or 4"), (9, 2, "3"), (64, 5, "4 or 8"), (7, 2, None)])
def test_and_with_the_numbers_of_ranks_that_do(size, count, ranks):
    overrides = ("parallel=ddp", f"launcher.nproc_per_node={count}", f"data.batch_size={size}", "trainer.device=cpu")
    expected = rf"launcher\.nproc_per_node={ranks}\.$" if ranks else r"data\.batch_size=\d+ or \d+\.$"
    with pytest.raises(ConfigurationError, match=expected):
        complete(config(*overrides))


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_cuda_graphs_and_accumulation_are_refused_on_gpus(machine, mode):
    overrides = (f"trainer.compile={mode}", "trainer.grad_accumulation=2")
    assert complete(config(*overrides))["trainer"]["compile"] == mode
    machine(gpus=1)
    with pytest.raises(
        ConfigurationError, match=rf"^trainer\.compile={mode}: .* Set it to 1, or trainer\.compile=default"
    ):
        complete(config(*overrides))
    complete(config(overrides[1], "trainer.compile=max-autotune-no-cudagraphs"))


@pytest.mark.parametrize(
    ("cores", "overrides", "workers"),
    [
        (1, ["data=mnist", "data.num_workers=auto"], 1),
        (8, ["data=mnist", "data.num_workers=auto"], 2),
        (8, ["data=digits", "data.num_workers=auto"], 0),
        (1, [], 1),
        (2, [], 2),
        (8, [], 7),
        (8, ["parallel=ddp"], 3),
        (96, [], 16),
        (96, ["data.num_workers=5"], 5),
    ],
)
def test_loader_processes_follow_the_cores(machine, tmp_path, cores, overrides, workers):
    machine(gpus=0, cores=cores)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "1.jpg").touch()
    data = [] if overrides and overrides[0].startswith("data=") else ["data=imagefolder", f"data.root={tmp_path}"]
    assert complete(config(*data, *overrides))["data"]["num_workers"] == workers


@pytest.mark.parametrize("order", ["fast", "[digits_quick,fast]"])
def test_the_fast_way_can_be_laid_over_another_experiment(order):
    done = complete(config(f"experiment={order}"))
    assert (done["precision"]["name"], done["trainer"]["channels_last"], done["trainer"]["compile"]) == (
        *("bf16", True, "default"),
    )
    assert done["trainer"]["epochs"] == (90 if order == "fast" else 15)


@pytest.mark.parametrize(
    ("overrides", "epochs"),
    [
        ((), 15),
        (("data=synthetic",), 90),
        (("trainer.max_steps=6000",), None),
        (("data=synthetic", "trainer.max_steps=6000"), None),
        (("trainer.max_steps=6000", "trainer.epochs=2"), 2),
        (("experiment=debug",), 1),
        (("data=synthetic", "trainer.max_steps=6000", "experiment=debug"), 1),
    ],
)
def test_a_default_number_of_epochs_never_cuts_a_typed_number_of_updates(overrides, epochs):
    trainer = typed(*overrides).trainer
    assert trainer.epochs == epochs
    if trainer.max_steps == 6000:
        assert trainer.steps_in(40) == (6000 if epochs is None else 40 * epochs)
        assert trainer.epochs_in(40) == (150 if epochs is None else epochs)


def test_other_keys_may_refer_to_the_number_of_epochs():
    scheduler = ("scheduler=custom", "scheduler._target_=torch.optim.lr_scheduler.CosineAnnealingLR")
    run = typed("data=synthetic", *scheduler, "+scheduler.T_max=${trainer.epochs}")
    assert run.scheduler.arguments()["T_max"] == 90


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.epochs=${oc.env:NOT_SET_HERE}", "trainer.epochs: .*NOT_SET_HERE"),
        (
            f"seed={2**64 - 1}",
            "seed=18446744073709551615 is not allowed. Allowed: an integer from 0 to 92233720368547758",
        ),
    ],
)
def test_values_that_ranks_cannot_use_are_refused_before_any_starts(override, message):
    with pytest.raises(ConfigurationError, match=message):
        typed(override)


def test_something_says_how_long_to_train():
    with pytest.raises(
        ConfigurationError, match="trainer.epochs=null and trainer.max_steps=null: nothing says how long"
    ):
        typed("trainer.epochs=null")


def test_a_frozen_run_is_lengthened_by_its_number_of_updates():
    """The frozen number of epochs, which its user may never have set, does not cut a number that is typed now."""
    frozen = frozen_config("data=synthetic")
    assert frozen["trainer"]["epochs"] == 90
    for words, epochs in (({"trainer.max_steps=6000"}, None), ({"trainer.max_steps=6000", "trainer.epochs=3"}, 3)):
        chosen = {word.partition("=")[0] for word in words}
        longer, folders = saved.composed(frozen, sorted(words), chosen=chosen)
        assert checked(longer, folders=folders).trainer.epochs == epochs
    again, folders = saved.composed(frozen, [], chosen=set())
    assert checked(again, folders=folders).written == frozen
