"""What a launcher declares: how many ranks it starts, and for whom."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from manyheads.runner.option.base import Option
from manyheads.runner.option.rules import AUTO, TEXT, Rule, choice, either, list_of, number, whole

FEWEST_AND_MOST = Rule("fewest:most", lambda v: isinstance(v, str) and re.fullmatch(r"\d+:\d+", v) is not None)


class LauncherOption(Option):
    """Starts ranks that meet over torch.distributed. ``one_process``: there is one rank only.

    ``restarts_ranks``: one that dies is started again, and ends no other.
    """

    rules: ClassVar = {
        "nproc_per_node": either(whole(1), AUTO),
        "threads_per_rank": either(whole(1), AUTO),
        "stall_timeout": number(above=0),
        "timeout": number(above=0),
        "wait_policy": choice("brief", "active", "passive"),
        "hosts": list_of(TEXT),
        "hostfile": TEXT,
        "arguments": TEXT,
        "nodes": either(whole(1), FEWEST_AND_MOST),
        "rendezvous": TEXT,
        "remote_shell": TEXT,
        "network_interface": TEXT,
        "node_timeout": number(at_least=2),
        "start_timeout": whole(1),
        "max_restarts": whole(0),
    }
    steering: ClassVar[tuple[str, ...]] = (
        *("hosts", "hostfile", "arguments"),
        *("nodes", "rendezvous", "remote_shell", "network_interface"),
    )
    derived: ClassVar[tuple[str, ...]] = ("threads_per_rank",)
    has_own_class = True
    one_process: ClassVar[bool] = False
    restarts_ranks: ClassVar[bool] = False

    def complete(self, config: dict[str, Any]) -> None:
        if self.section.get("hostfile") is not None:  # a run may go on from another directory
            self.section["hostfile"] = os.path.abspath(os.path.expanduser(self.section["hostfile"]))

    @contextmanager
    def on_its_machines(self, config: dict[str, Any]) -> Iterator[None]:
        """Decide where the ranks will be; meanwhile ``machine.hardware`` speaks of the machines there."""
        yield

    def gpus_here(self, count: int) -> int:
        """How many of this machine's own GPUs a run takes that has so many on each of its machines."""
        return count

    @property
    def horovod_controller(self) -> str | None:
        """How the ranks agree whom it starts for Horovod, "gloo" or "mpi"; None if it starts none for Horovod."""
        return None
