"""What failed first in a run: the entry ``error`` of result.json, and what a failed rank leaves for its parent."""

import traceback
from dataclasses import asdict, dataclass
from typing import Any

# Gloo closes its connections before the error that it raises can be reported, and other ranks hear that first.
LOST_PEER = ("connection closed by peer", "connection reset by peer")
NO_MEMORY = ("OutOfMemoryError", "out of memory", "can't allocate memory")  # of a GPU, or torch's CPU allocator


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure and its cause.

    rank: None if it does not belong to one rank. exit_code: of the process; negative: the signal that killed it; None:
    unknown. type: an exception's class, or a word of this project's, such as ProcessDied. traceback: "" if there is
    none. node: where it happened, in a run on several machines.
    """

    rank: int | None = None
    exit_code: int | None = None
    type: str
    message: str
    traceback: str = ""
    node: str | None = None

    @classmethod
    def of(cls, error: BaseException, *, rank: int | None = None) -> "Failure":
        """The failure of a process that ``error`` ends, with the exit code of the error, or 1 if it has none."""
        exit_code = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
        if not isinstance(exit_code, int):
            exit_code = 1
        trace = "".join(traceback.format_exception(error))
        return cls(rank=rank, exit_code=exit_code, type=type(error).__name__, message=str(error), traceback=trace)

    @classmethod
    def from_json(cls, content: object) -> "Failure | None":
        """The failure in parsed JSON, whose other keys are ignored; None where it holds no type and message."""
        if not isinstance(content, dict):
            return None
        numbers = {key: content[key] for key in ("rank", "exit_code") if type(content.get(key)) is int}
        names = ("type", "message", "traceback", "node")
        texts = {key: content[key] for key in names if isinstance(content.get(key), str)}
        return cls(**numbers, **texts) if {"type", "message"} <= texts.keys() else None

    @property
    def is_out_of_memory(self) -> bool:
        """Whether a rank asked for more memory than there was."""
        return any(text in f"{self.type}: {self.message}" for text in NO_MEMORY)

    @property
    def is_lost_peer(self) -> bool:
        """Whether the error only says that another rank is gone, which must have its own cause."""
        return any(text in self.message.lower() for text in LOST_PEER)

    def to_json(self) -> dict[str, Any]:
        """What ``json.dumps`` takes, with the keys in the order of the fields; a machine where there are several."""
        return {key: value for key, value in asdict(self).items() if key != "node" or value is not None}

    def describe(self) -> str:
        """One paragraph that says which rank failed first, and how."""
        who = [] if self.rank is None else [f"rank {self.rank}"]
        who += [] if self.node is None else [f"machine {self.node}"]
        where = f"{' on '.join(who)} failed first" if who else "the run failed"
        code = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        return f"{where}{code}: {self.type}: {self.message}"
