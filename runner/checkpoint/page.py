"""What ``show`` prints about a checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from manyheads.runner.errors import printable
from manyheads.runner.run.answer import Answer


@dataclass(frozen=True)
class ListedTensor:
    """A tensor in a checkpoint."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: Annotated[int, "bytes"]
    where: Annotated[str, "the files that have pieces of it; empty if there is one file"] = ""


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint."""

    name: str
    size: Annotated[int, "bytes"]
    sha256: str


@dataclass(frozen=True)
class CheckpointPage(Answer):
    """The contents of a checkpoint; nothing is loaded."""

    path: Path
    about: Annotated[str, "its step and its format"]
    tensors: list[ListedTensor]
    files: list[CheckpointFile]

    def show(self) -> None:
        print(f"{printable(self.path)}: {self.about}")
        print()
        width = max((len(printable(row.name)) for row in self.tensors), default=0)
        for row in self.tensors:
            line = f"{printable(row.name):{width}}  {row.dtype:4}  {row.size:>14,}  {row.shape!s:20}  {row.where}"
            print(line.rstrip())
        print(f"{len(self.tensors)} tensors, {sum(row.size for row in self.tensors):,} bytes")
        print()
        for file in self.files:
            print(f"{printable(file.name)}  {file.size:,} bytes  sha256 {printable(file.sha256)}")
