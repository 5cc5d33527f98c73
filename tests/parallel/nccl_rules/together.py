"""Ranks that train one run after another, and record their calls: ``train_together`` with NCCL's rules."""

from typing import Any, NoReturn

from manyheads.runner.loop import rank_main as worker
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.parallel.nccl_rules.calls import RecordedCalls
from tests.parallel.together import trained

MAIN = "tests.parallel.nccl_rules.together"


def main(path: str) -> NoReturn:
    """Be one of these ranks. Ends the process."""
    worker.main(path, work=work)


def work(_: RunConfig, parallel: Any, folder: RunFolder, heartbeat: Heartbeat) -> None:
    rank = parallel.rank
    for _ in trained(parallel, folder, heartbeat, beside=lambda run: RecordedCalls(run / f"calls_{rank}")):
        pass
