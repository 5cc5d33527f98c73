"""The collective operation at which this rank waits, from torch's flight recorder, which keeps the last 2,000 of them.

Source: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html. In torch 2.6 NCCL has one, in 2.15
Gloo too.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch._C import _distributed_c10d

from manyheads.runner.run.heartbeat import Pending

DUMPS = {"nccl": "_dump_nccl_trace_json", "gloo": "_dump_fr_trace_json"}  # functions of torch, if it has them
BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


def pending(backend: str) -> Pending | None:
    """The first operation that this rank has begun and not completed; None if there is none, or no recorder."""
    dump: Callable[..., str] | None = getattr(_distributed_c10d, DUMPS.get(backend, ""), None)
    if dump is None:
        return None
    entries = json.loads(dump(includeCollectives=True, onlyActive=True)).get("entries", ())
    waiting = [each for each in entries if each["state"] != "completed" and not each["retired"]]
    return described(min(waiting, key=lambda each: each["record_id"])) if waiting else None


def described(entry: Mapping[str, Any]) -> Pending:
    """The operation of a recorder's entry, whose name is such as gloo:all_reduce, with this rank's input tensors."""
    name = entry["profiling_name"].rpartition(":")[2].strip("_").split(" ")[0]
    sizes = zip(entry["input_sizes"], entry["input_dtypes"], strict=False)
    return Pending.of(name, sum(math.prod(shape) * BYTES.get(dtype, 1) for shape, dtype in sizes))
