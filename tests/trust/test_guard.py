"""Files of run folders are opened through the guard (runner/run/folder.py): found by reading the source."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT

METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
FUNCTIONS = {"shutil.rmtree", "os.walk", "OmegaConf.load", "OmegaConf.save", "np.load", "np.loadtxt"}
KNOW_FOLDERS = {"RunFolder", "Ledger", "Folder"}
# By file, how many calls open something by its path, and why they may.
ALLOWED = {
    "runner/trust/trust_store.py": (1, "the user's own settings"),
    "runner/run/seal.py": (2, "the user's own key"),
    "runner/run/files.py": (1, "a descriptor that the guard has opened"),
    "runner/provenance/provenance.py": (2, "the metadata of installed packages"),
    "runner/provenance/kept_files.py": (2, "the user's own files, which are copied"),
    "runner/parity/parity_task.py": (1, "a task in a folder that this command has created"),
    "runner/parity/run_parity.py": (1, "the same folder"),
    "launchers/slurm/batch_script.py": (1, "the project's own templates"),
    "launchers/nodes/storage.py": (5, "tokens that machines show each other, after links were refused"),
    "launchers/nodes/examine_hosts.py": (3, "a scratch folder that the check of the network has created"),
}


def modules() -> list[Path]:
    """Those that handle run folders."""
    found = [path for folder in ("runner", "launchers") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if KNOW_FOLDERS & _imported(ast.parse(path.read_text()))]


def _imported(tree: ast.Module) -> set[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.ImportFrom, ast.ClassDef))]
    return {
        name
        for node in nodes
        for name in ([node.name] if isinstance(node, ast.ClassDef) else [each.name for each in node.names])
    }


def opens(tree: ast.Module) -> list[str]:
    """Calls that open, list or remove something by its path."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg for keyword in node.keywords}
            if name == "open" and "opener" not in keywords:
                found.append(name)
            if name in FUNCTIONS and "dir_fd" not in keywords:
                found.append(name)
            if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                found.append(node.func.attr)
    return found


def test_no_module_that_knows_run_folders_opens_a_path_by_itself():
    found = Counter({str(path.relative_to(ROOT)): len(opens(ast.parse(path.read_text()))) for path in modules()})
    assert {name: count for name, count in found.items() if count} == {
        name: count for name, (count, _) in ALLOWED.items()
    }


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("open(path)", 1),
        ("open(path, opener=no_link)", 0),
        ("(folder / name).read_text()", 1),
        ("shutil.rmtree(path)", 1),
        ("shutil.rmtree(name, dir_fd=handle)", 0),
        ("folder.open(name)", 0),
        ("OmegaConf.save(config, path)", 1),
    ],
)
def test_what_is_found(source, count):
    assert len(opens(ast.parse(source))) == count
