"""How much of a run's spine is about optional features, and how much there is of it.

python -m tests.house.loop                           # the figures, and the lines that name a feature
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.loop.trainer import Trainer
from manyheads.runner.loop.update import Update
from manyheads.runner.parallel.rank.parallel import Parallel
from manyheads.runner.parallel.rank.tensor_layout import TensorLayout
from tests.walks.__main__ import first_update
from tests.walks.source import Source

ROOT = Path(__file__).resolve().parents[2]
SPINE = {
    "update": "runner/loop/update.py",
    "trainer": "runner/loop/trainer.py",
    "session": "runner/loop/session.py",
    "launch": "launchers/launch.py",
}
FEATURES = (  # as names in code begin: what a run may ask for, watches itself by, or is used for
    *(r"sam(?!p)", "ema", "swa", "average", "spike", "verif", "corrupt", "unreadable", "views", "tta", "frozen"),
    *("breakdown", "rank_?times", "garbage", "taken", "sample_?record", "callback", "utilization", "mfu", "describe"),
    *("freez", "held", "gradient_?observer", "first_gradients", "rejoin", "replica", "predictions", "mirror"),
    *("publish", "flight", "nodes", "on_?nodes", "agents", "warm(?!_up)", "storage", "explain(?!ed)", "estimate"),
    *("parity", "judge", "tune", "scale", "audit", "serve", "slurm", "ray", "torchft"),
)
WORDS = re.compile(rf"(\b|_)({'|'.join(FEATURES)})(?!=True)", re.IGNORECASE)


def code(path: str) -> list[str]:
    """The lines of a file that hold code: no blank line, comment or docstring."""
    text = (ROOT / path).read_text()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docs = [
        node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)
    ]
    skipped = {number for doc in docs for number in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)}
    lines = [line.partition("  #")[0].strip() for line in text.splitlines()]
    return [line for number, line in enumerate(lines, 1) if line and line[0] != "#" and number not in skipped]


def naming(path: str) -> list[str]:
    """The lines of code in a file that name an optional feature."""
    return [line for line in code(path) if WORDS.search(line)]


def share(path: str) -> float:
    """The fraction of a file's lines of code that name an optional feature."""
    return len(naming(path)) / len(code(path))


def arguments(kind: type) -> list[str]:
    """The names of a constructor's arguments."""
    return [*inspect.signature(kind).parameters]


def hooks() -> list[str]:
    """The methods and properties that a strategy may override, of ``Parallel`` and of its layout."""
    members = [member for kind in (Parallel, TensorLayout) for member in vars(kind).items() if member[0][0] != "_"]
    return [name for name, member in members if callable(member) or isinstance(member, property)]


def to_the_first_update() -> tuple[int, int]:
    """The number of files that a config passes from ``run.py`` to the first update, and their lines."""
    files = first_update(Source.read(ROOT))
    return len(files), sum(len((ROOT / file).read_text().splitlines()) for file in files)


def long_functions(*, most: int = 40) -> Iterator[str]:
    """The functions of the loop that have more lines than this."""
    for path in sorted((ROOT / "runner/loop").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > most:
                yield f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"


def main() -> None:
    for name, path in SPINE.items():
        print(f"{name}: {share(path):.0%} of {len(code(path))} lines", *naming(path), sep="\n    ")
    print(f"arguments: Update {len(arguments(Update))}, Trainer {len(arguments(Trainer))}")
    print(f"hooks: {len(hooks())}")
    print("to the first update: {} files, {:,} lines".format(*to_the_first_update()))
    print(*long_functions(), sep="\n")


if __name__ == "__main__":
    main()
