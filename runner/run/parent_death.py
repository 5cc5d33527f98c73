"""A rank must not outlive the process that started it, even when that one is killed with SIGKILL."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux: prctl(2), PR_SET_PDEATHSIG).

    Call it in the main thread, which is also what must have started this process in the parent.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    top = os.environ.get("MANYHEADS_PARENT")
    if os.getppid() != parent or (top is not None and not os.path.exists(f"/proc/{top}")):
        os._exit(1)  # it ended before the kernel knew of our wish
