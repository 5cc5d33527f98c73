"""What torch.cuda says where there is one GPU of no known model."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

NAME, MEMORY = "Fake GPU", 80 * 2**30


def kinds(note: Callable[[str], None]) -> tuple[type, type]:
    """The classes of events and streams. ``note``: called with the name of each call that waits for the GPU."""

    class Event:
        """Is always reached; to ask for its time one has to wait."""

        def __init__(self, *, enable_timing: bool = False, **_: Any):
            self.has_time = enable_timing

        def record(self, stream: Any = None) -> None:
            pass

        def wait(self, stream: Any = None) -> None:
            pass

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            note("Event.synchronize")

        def elapsed_time(self, other: "Event") -> float:
            return 1.0

    class Stream:
        """Has done everything."""

        def __init__(self, device: Any = None, priority: int = 0, **_: Any):
            self.device, self.cuda_stream, self.stream_id, self.device_index, self.device_type = device, 0, 0, 0, 1

        def wait_stream(self, stream: Any) -> None:
            pass

        def wait_event(self, event: Any) -> None:
            pass

        def record_event(self, event: Any = None) -> Event:
            return event or Event()

        def is_capturing(self) -> bool:
            return False

        def synchronize(self) -> None:
            note("Stream.synchronize")

    return Event, Stream


def replacements(note: Callable[[str], None]) -> dict[Any, dict[str, Any]]:
    """Attributes of torch's modules by name. ``note``: as for ``kinds``."""
    event, stream = kinds(note)
    accelerator = {
        "current_stream": lambda device=None: stream(device),
        "current_device_index": lambda: 0,
        "synchronize": lambda device=None: note("torch.accelerator.synchronize"),
    }
    return {torch.cuda: _of_cuda(note, event, stream), torch.accelerator: accelerator}


def _of_cuda(note: Callable[[str], None], event: type, stream: type) -> dict[str, Any]:
    properties = SimpleNamespace(name=NAME, total_memory=MEMORY, major=9, minor=0, uuid="0", multi_processor_count=132)
    return {
        "Event": event,
        "Stream": stream,
        "synchronize": lambda device=None: note("torch.cuda.synchronize"),
        "stream": lambda used: nullcontext(),
        "current_stream": lambda device=None: stream(device),
        "default_stream": lambda device=None: stream(device),
        "is_available": lambda: True,
        "is_initialized": lambda: False,  # so that nobody asks for its generator
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: None,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": lambda device=None: properties,
        "max_memory_allocated": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
    }
