"""Torch begins to be imported while Hydra still composes, where the command line shows that ranks will be forked.

It is a guess, made without Hydra: where it is wrong, nothing is lost but the guess, since ``launchers.warm`` ends a
server that does not fit the config, and starts another.
"""

from collections.abc import Sequence

from launchers import warm
from runner import hardware
from runner.compatibility import ONE_PROCESS_STRATEGIES

USUAL = {"ddp": "spawn"}  # conf/parallel: the launcher of a strategy whose launcher can be warm
WARM = ("spawn", "torchrun")


def start(arguments: Sequence[str]) -> None:
    """Let the server import in the background, if the command's ``arguments`` ask for ranks of its kind."""
    threads = guessed_threads(arguments)
    if threads is not None:
        warm.start(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)))


def guessed_threads(arguments: Sequence[str]) -> int | None:
    """CPU threads of each rank, as the config will probably say; None where no rank will be forked.

    Of a sweep's values the first one counts. Any flag but that for a sweep may change everything, and what starts a
    sweep's jobs may start them in processes of their own.
    """
    if any(argument.startswith("-") and argument not in ("-m", "--multirun") for argument in arguments):
        return None
    if any(argument.lstrip("+").startswith(("hydra/launcher", "hydra.launcher")) for argument in arguments):
        return None
    said = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    said = {key: value.split(",")[0] for key, value in said.items()}
    strategy = said.get("parallel", "single")
    if said.get("launcher", USUAL.get(strategy)) not in WARM or said.get("launcher.warm", "true") != "true":
        return None
    if (threads := said.get("launcher.threads_per_rank", "auto")) != "auto":
        return int(threads) if threads.isdigit() else None
    gpus = 0 if said.get("trainer.device") == "cpu" else len(hardware.gpu_names())
    usual = 1 if strategy in ONE_PROCESS_STRATEGIES else gpus or 2
    ranks = said.get("launcher.nproc_per_node", str(usual))
    return hardware.cores_for_each(int(ranks)) if ranks.isdigit() and int(ranks) else None
