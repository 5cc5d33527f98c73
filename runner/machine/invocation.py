"""How the user called this project, so that the commands which are printed can be pasted.

Installed with pip that is ``manyheads train``, ``manyheads resume``, ...; in a checkout also ``python run.py`` and
``python -m runner resume``, elsewhere ``python /path/to/checkout/runner resume``.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IS_CHECKOUT = (ROOT / "run.py").is_file()
_SCRIPT = "MANYHEADS_SCRIPT"  # set for child processes too, whose ranks print commands


def note_script() -> None:
    """Note, also for child processes, that the user called the console script."""
    os.environ[_SCRIPT] = "1"


def by_script() -> bool:
    """Whether the user called the console script, which is the only way outside a checkout."""
    return _SCRIPT in os.environ or not IS_CHECKOUT


def import_path() -> str:
    """The import path by which a child process finds the code that this process has imported."""
    import manyheads

    folder = str(Path(manyheads.__file__).absolute().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    if {"site-packages", "dist-packages"} & {*Path(folder).parts}:
        return inherited  # it finds what is installed by itself, behind Python's own modules
    return os.pathsep.join(filter(None, [folder, inherited]))


def as_typed() -> list[str]:
    """The command line of this process, without the folders of the programs in it."""
    _, *words = sys.orig_argv
    if words[:1] == ["-m"] and words[1].partition(".")[0] not in ("manyheads", "runner"):
        words = sys.argv  # such as a worker of joblib, whose sys.argv is its parent's
    return ["manyheads", *words[1:]] if words[:1] == [sys.argv[0]] and by_script() else ["python", *words]


def command(name: str = "", *arguments: object) -> str:
    """One of the commands, with ``arguments`` quoted for a shell; without a name, the beginning of all commands.

    It can be pasted in the working directory. In a checkout it names the Python that runs here.
    """
    words = ["manyheads", name]
    if not by_script():
        is_first = os.path.dirname(shutil.which("python") or "") == os.path.dirname(sys.executable)
        below, modules = ("", ["-m", "runner"]) if os.path.samefile(".", ROOT) else (f"{ROOT}/", [f"{ROOT}/runner"])
        script = [f"{below}run.py"] if name == "train" else [*modules, name]
        words = ["python" if is_first else sys.executable, *script]
    return shlex.join([*filter(None, words), *map(str, arguments)])
