"""The declared matrix: what is run, with tiny sizes, on CPUs.

Every strategy with each setting under its own launcher, and under each other launcher that starts it; then what is not
a plain training run. A case is a list of commands that are run in one folder, one after the other; what is refused
stays in the record, as the refusal. `product=True` runs every strategy with each setting under each launcher.
"""

from collections.abc import Iterator
from itertools import product

Command = tuple[str, ...]

IMAGES = ("data=synthetic", "data.image_size=8", "data.num_classes=3", "data.train_samples=96", "data.val_samples=19")
TEXT = ("task=language_model", "data=stdlib_text", "data.max_tokens=1600", "data.block_size=16")
CNN = (*IMAGES, "model.width=2")
GPT = (*TEXT, "model=gpt", "model.depth=4", "model.width=16", "model.heads=2")
ONE_THREAD = ("launcher.threads_per_rank=1",)  # how sums are rounded depends on their number, and that on cores
SHORT = (
    *("data.batch_size=16", "trainer.epochs=2", "trainer.log_every=2", "trainer.device=cpu", "optimizer.lr=0.05"),
    *(*ONE_THREAD, "logger=csv"),
)

STRATEGIES: dict[str, Command] = {
    "single": CNN,
    "dp": CNN,
    "ddp": CNN,
    "zero1": CNN,
    "local_sgd": (*CNN, "parallel.start=4", "parallel.period=2"),
    "apex": CNN,
    "horovod": CNN,
    "replicated": (*CNN, "parallel.trusted_network=true"),
    "fsdp": GPT,
    "tensor": GPT,
    "pipeline": GPT,
    "mesh": (*GPT, "parallel.shard=1", "parallel.pipeline=2", "parallel.tensor=1"),
}
LAUNCHERS: dict[str, tuple[Command, ...]] = {
    **dict.fromkeys(["single", "dp"], (("launcher=inline",), ("launcher=spawn", "launcher.nproc_per_node=1"))),
    **dict.fromkeys(
        ["ddp", "zero1", "local_sgd", "fsdp", "tensor", "pipeline", "mesh"],
        (("launcher=spawn",), ("launcher=torchrun",), ("launcher=mpirun",)),
    ),
    "apex": (("launcher=spawn",),),
    "horovod": (("launcher=horovodrun", "launcher.controller=gloo"), ("launcher=mpirun",)),
    "replicated": (("launcher=torchft", "launcher.nproc_per_node=2"),),
}
SETTINGS: dict[str, Command] = {
    "fp32": (),
    "amp": ("precision=amp",),
    "fp16": ("precision=amp", "precision.dtype=float16", "precision.init_scale=1024", "precision.growth_interval=4"),
    "accumulation": ("trainer.grad_accumulation=2",),
    "clipping": ("trainer.clip_norm=0.1",),
}


def cases(*, product_of_all: bool) -> Iterator[tuple[str, list[Command]]]:
    """Name and commands of every case; a command starts with ``train`` or the name of another one."""
    for strategy, common in STRATEGIES.items():
        for launcher, setting in product(LAUNCHERS[strategy], SETTINGS):
            if product_of_all or setting == "fp32" or launcher == LAUNCHERS[strategy][0]:
                name = f"{strategy} {launcher[0].partition('=')[2]} {setting}"
                yield name, [train(*common, f"parallel={strategy}", *launcher, *SETTINGS[setting])]
    for others in (_training(), _tasks_and_data(), _commands()):
        for name, commands in others.items():
            yield name, commands


def train(*overrides: str, to: str = "run") -> Command:
    """A run in the folder ``to``. Keys of SHORT that are given otherwise are left to what is given."""
    given = {override.partition("=")[0] for override in overrides}
    kept = (override for override in SHORT if override.partition("=")[0] not in given)
    last = {override.partition("=")[0]: override for override in overrides}  # of a key that is given twice
    return ("train", *last.values(), *kept, f"hydra.run.dir={to}")


def sweep(*overrides: str) -> Command:
    return ("train", "-m", *train(*overrides)[1:-1], "hydra.sweep.dir=sweep")


def _training() -> dict[str, list[Command]]:
    options = {
        "ema": ("trainer.ema_decay=0.9",),
        "swa": ("trainer.swa_start=1",),
        "sam": ("trainer.sam_rho=0.05",),
        "mixing": ("trainer.mixup_alpha=0.2", "trainer.cutmix_alpha=1", "trainer.label_smoothing=0.1"),
        "resizing": ("trainer.resize_from=8", "data.image_size=16"),
        "freezing": ("parameters.freeze_epochs=[{match: classifier, until: 2}]", "parameters.norm_weight_decay=0"),
        "tta": ("trainer.tta=flip",),
        "tests": ("trainer.test=true", "data.val_fraction=0.2"),
        "steps": ("trainer.max_steps=7", "trainer.evaluate_every=3steps"),
        "incomplete batches": ("data.drop_last=false", "data.train_samples=91"),
        "metrics": ("metrics=[f1,iou,auroc]", "callbacks=[confusion_matrix,predictions,worst_samples]"),
        "fp64": ("precision=fp64",),
        "bf16": ("precision=bf16",),
        **{name: (f"optimizer={name}",) for name in ("adam", "adamw", "lamb", "lion", "muon")},
        **{
            f"scheduler {name}": (f"scheduler={name}",)
            for name in ("constant", "multistep", "one_cycle", "plateau", "polynomial", "step", "wsd")
        },
    }
    several = ("ema", "sam", "mixing", "incomplete batches", "metrics")
    sharded = (*GPT, "parallel=fsdp", "checkpoint.format=sharded")
    half = ("trainer.stop_after=5",)
    return {
        **{f"with {name}": [train(*CNN, *given)] for name, given in options.items()},
        **{f"with {name}, ddp": [train(*CNN, "parallel=ddp", *options[name])] for name in several},
        "resumed": [train(*CNN, *half), ("resume", "run", "trainer.stop_after=null")],
        "resumed, ddp": [train(*CNN, "parallel=ddp", *half), ("resume", "run", "trainer.stop_after=null")],
        "resumed, sharded": [train(*sharded, *half), ("resume", "run", "trainer.stop_after=null")],
        "from a checkpoint": [train(*CNN), train(*CNN, "checkpoint.load=run/checkpoints/last.pt", to="second")],
        "single checkpoint": [train(*GPT, "parallel=fsdp", "checkpoint.format=single")],
        "sharded checkpoint": [train(*sharded, "checkpoint.every=3", "checkpoint.keep=2")],
        "asynchronous": [train(*CNN, "checkpoint.asynchronous=true", "checkpoint.every=2", "checkpoint.keep_every=4")],
        "mesh of four": [train(*GPT, "parallel=mesh", "parallel.tensor=2", "launcher.nproc_per_node=4")],
    }


def _tasks_and_data() -> dict[str, list[Command]]:
    small = ("data.train_samples=32", "data.val_samples=8")
    options = {
        "digits": ("data=digits", "trainer.limit_train=4", "trainer.limit_val=2", "model.width=2"),
        "regression": ("task=regression", "data=diabetes", "model=mlp"),
        "table": ("data=table", "task=auto", "data.root=houses.csv", "data.target=price"),
        "multilabel": ("task=multilabel", "data=shapes_multilabel", *small, "model.width=2"),
        "segmentation": ("task=segmentation", "data=shapes", *small, "model=lraspp_mobilenet_v3_large"),
        "language model": GPT,
        "own_loss": (
            *(
                "task=own_loss",
                "task.loss_over=next_tokens",
                "data=own.py:Sentences",
                "data.num_workers=0",
                "model=custom",
            ),
            *("model._target_=transformers.GPT2LMHeadModel", "+model.config._target_=transformers.GPT2Config"),
            *("+model.config.n_layer=1", "+model.config.vocab_size=256"),
            *("+model.config.n_embd=16", "+model.config.n_head=2"),
        ),
        "custom": ("data=own.py:Noise", "data.num_workers=0", "model=own.py:Net"),
        "text": ("task=language_model", "data=text", "data.root=texts", "data.block_size=16", *GPT[4:]),
        "imagefolder": ("data=imagefolder", "data.root=photos", "data.image_size=16", "data.num_workers=1"),
        "hf": ("data=hf", "data.root=table", "task=language_model", "data.label_column=none", *GPT[4:]),
        "mnist": ("data=mnist", "data.root=mnist", "data.num_workers=0", "data.download=false", "model.width=2"),
        "on_device": (*CNN, "data.on_device=true", "data.augment=crop_flip"),
        "folds": (*CNN, "data.folds=3", "data.fold=1"),
        "loader processes": (*CNN, "data.num_workers=2", "data.augment=crop_flip", "data.flip=alternating"),
    }
    return {f"data: {name}": [train(*given)] for name, given in options.items()}


def _commands() -> dict[str, list[Command]]:
    several = ("data.train_samples=32", "trainer.epochs=1")
    search = (
        *(
            "hydra/sweeper=search",
            "hydra.sweeper.n_trials=4",
            "hydra.sweeper.sampler.seed=1",
            "hydra/sweeper/pruner=none",
        ),
        "optimizer.lr=tag(log,interval(0.0001,0.3))",
    )
    cnn = tuple(each for each in CNN if not each.startswith("data.train_samples"))
    return {
        "sweep of six": [sweep(*cnn, *several, "parallel=single,ddp", "optimizer.lr=0.1,0.05,0.02")],
        "sweep of lists": [
            sweep(*cnn, *several, "seed=1,2", "parameters.freeze=[],[classifier]", "trainer.clip_norm=inf,1e-3")
        ],
        "search": [sweep(*cnn, *several, *search)],
        "parity": [
            ("parity", *GPT, *SHORT[:1], *ONE_THREAD, "optimizer.lr=1e-3", "parallel=ddp,fsdp,tensor", "--steps", "3")
        ],
        "estimate": [
            ("estimate", *GPT, *SHORT[:1], "parallel=single,ddp,fsdp,tensor", "--json", "launcher.nproc_per_node=4")
        ],
        "evaluate": [train(*CNN), ("evaluate", "run"), ("evaluate", "run", "parallel=ddp")],
        "longer": [train(*CNN), ("resume", "run", "trainer.epochs=3", "hydra.run.dir=longer")],
        "reproduce": [train(*CNN), ("reproduce", "run")],
    }
