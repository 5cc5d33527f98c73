"""A real Ray cluster of several nodes on this machine, in one process tree.

The folder is not called ray: ranks have tests/launchers in their path, and would import that.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def cluster(*, nodes: int, cpus: int = 1) -> Iterator[Any]:
    """A ``ray.cluster_utils.Cluster`` whose nodes have so many CPUs each; the first is the head."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ |= {"RAY_raylet_start_wait_time_s": "120"}  # on a busy machine
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    small = {"num_cpus": cpus, "num_gpus": 0, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=small)
    try:
        for _ in range(nodes - 1):
            made.add_node(num_cpus=cpus, num_gpus=0, object_store_memory=80 * 2**20)
        yield made
    finally:
        made.shutdown()
