"""Each of these things is done in one place: found by reading the source of the project."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "run.py", *sorted((ROOT / "runner").rglob("*.py")), *sorted((ROOT / "launchers").rglob("*.py"))]

# What is done: where, and by which names, complete (``os.fork``) or as a module (``subprocess.``).
WAYS = {
    "other programs are started": (
        # a function that the workers of a Ray cluster know
        {"runner/run/program.py", "launchers/ray/ray_driver.py"},
        ("subprocess.",),
    ),
    "processes are forked by nobody but multiprocessing": (
        {"runner/answers/judge/command/supervisor.py"},  # which starts a command that it measures, and imports little
        ("os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp", "os.system", "os.popen", "pty."),
    ),
    "processes of Python are started": (
        # of ranks, what is beside them, and what loads their data; of a sweep's jobs, which need Hydra's state
        {"launchers/warm_server.py", "runner/data/rank/workers.py", "launchers/sweep/slots.py"},
        (
            "multiprocessing.Process",
            "multiprocessing.get_context",
            "multiprocessing.Pool",
            "concurrent.futures.ProcessPoolExecutor",
        ),
    ),
    "files are locked": ({"runner/run/files.py"}, ("fcntl.flock", "fcntl.lockf")),
    "files are replaced or renamed": (
        {"runner/run/files.py", "runner/run/folder.py"},
        ("os.replace", "os.rename", "os.renames", "shutil.move"),
    ),
    "YAML is read and written, and texts are quoted in templates of YAML": (
        {"runner/run/yaml_text.py", "runner/commands/manifest/engines.py"},
        ("yaml.",),
    ),
}


def names(tree: ast.Module) -> Iterator[str]:
    """Each dotted name that the module uses of modules that it imports, under the modules' own names."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names}
            yield from (f"{each.name}." for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            yield from (f"{node.module}.{each.name}" for each in node.names)
    for node in ast.walk(tree):
        parts = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in known:
            yield ".".join([known[inner.id], *reversed(parts)])


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """The names that each file uses."""
    return {str(path.relative_to(ROOT)): set(names(ast.parse(path.read_text()))) for path in FILES}


@pytest.mark.parametrize("what", WAYS)
def test_there_is_one_way(what: str, used: dict[str, set[str]]) -> None:
    places, ways = WAYS[what]
    found = {
        file
        for file, these in used.items()
        if any(name == way or (way.endswith(".") and name.startswith(way)) for name in these for way in ways)
    }
    assert found == places
