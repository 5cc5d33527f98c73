"""The configs of the tasks in the zoo."""

ZOO = "tests.loop.own_step.zoo"
DATA = ("data=custom", f"data._target_={ZOO}.Points", "data.batch_size=8", "data.num_workers=0")
COMMON = (*DATA, "trainer.epochs=2", "trainer.log_every=1", "trainer.device=cpu", "launcher.threads_per_rank=1")


def of(task: str, model: str, *others: str) -> tuple[str, ...]:
    names = (f"task._target_={ZOO}.{task}", f"model._target_={ZOO}.{model}")
    return (*COMMON, "task=custom", "model=custom", *names, *others)


PARTS = ("generator", "discriminator")
SEVERAL = (
    "optimizer=several",
    *(f"+optimizer@optimizer.parts.{part}=adam" for part in PARTS),
    *("optimizer.parts.generator.lr=0.01", "optimizer.parts.discriminator.lr=0.02"),
)
GAN = of("GAN", "Pair", *SEVERAL)
DISTILLATION = of("Distillation", "Taught", "optimizer.lr=0.05")
BYOL = of("BYOL", "Twins", "optimizer.lr=0.05")
CONTRASTIVE = of("Contrastive", "Projection", "optimizer.lr=0.05")
TRIPLETS = of("Triplets", "Projection", "optimizer.lr=0.05")
HALVES = (f"+optimizer@optimizer.parts.{part}=adam" for part in ("one", "other"))
CROSSED = of("Crossed", "Halves", "optimizer=several", *HALVES)
TASKS = {"gan": GAN, "distillation": DISTILLATION, "byol": BYOL, "contrastive": CONTRASTIVE, "triplets": TRIPLETS}
