"""A real Ray cluster of several nodes on this machine, in one process tree.

The folder is not called ray: ranks have tests/launchers in their path, and would import that.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 * 2**20}
START_SECONDS = 240  # of a node, on a busy machine


@contextmanager
def cluster(*, nodes: int) -> Iterator[Any]:
    """A ``ray.cluster_utils.Cluster`` whose nodes have one CPU each; the first is the head."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ |= {"RAY_raylet_start_wait_time_s": str(START_SECONDS)}
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    with patient():
        made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        fill(made, nodes=nodes)
        yield made
    finally:
        made.shutdown()


def fill(made: Any, *, nodes: int) -> None:
    """Add nodes until there are ``nodes``. Only in the main thread: Ray sets a signal handler for each."""
    with patient():
        while 1 + len(made.worker_nodes) < nodes:
            made.add_node(**NODE)


@contextmanager
def patient() -> Iterator[None]:
    """Ray gives a node 30 s to be known, whatever is set; on a busy machine that takes minutes."""
    from ray._private import services

    asked = services.get_node

    def get_node(*arguments: Any) -> Any:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return asked(*arguments)
            except RuntimeError:  # not yet
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    with patch.object(services, "get_node", get_node):
        yield


def lose_a_node(made: Any) -> None:
    """Kill all of Ray's processes on a node that is not the head, as if its machine were gone."""
    made.remove_node(next(iter(made.worker_nodes)), allow_graceful=False)
