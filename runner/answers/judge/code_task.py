"""The task of a rank whose code may be another revision's: a small file next to run.yaml, written by the parent."""

from dataclasses import asdict, dataclass

from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.run_folder import RunFolder

CODE_FILE = "judge_code.json"


@dataclass(frozen=True)
class CodeTask:
    """To import the packages of the ``project`` from ``folders``. ``rank``: the module whose ``main`` is the rank."""

    rank: str
    project: str
    folders: list[str]


def write_code_task(folder: RunFolder, task: CodeTask) -> None:
    """Write the task; after run.yaml, before the ranks start."""
    folder.write_json(folder.path / CODE_FILE, asdict(task))


def read_code_task(folder: RunFolder) -> CodeTask:
    """The folder's task."""
    return CodeTask(**read_json(folder.path / CODE_FILE))
