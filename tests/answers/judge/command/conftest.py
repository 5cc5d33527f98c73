import subprocess
from pathlib import Path

import pytest

from manyheads.runner.app import main
from tests.conftest import Done

# Prints a loss that depends on the seed in its last digits, smaller by the gain in thousandths.
TRAIN = """n=${1:-$MANYHEADS_SEED}
gain=0
echo "epoch 1 loss: 9.9"
echo "epoch 2 loss: 0.$((7000 - 10 * gain + n % 97))"
"""


class Project:
    """A repository with the script train.sh. ``seen``: what a judgement printed."""

    def __init__(self, folder: Path, capsys):
        self.folder, self._capsys = folder, capsys
        self.write("train.sh", TRAIN)
        self.write(".gitignore", "outputs/\ndata/\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *name, *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "a")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def gain(self, value: int) -> None:
        """Change the script in the working tree."""
        self.write("train.sh", TRAIN.replace("gain=0", f"gain={value}"))

    def judge(self, *words: str) -> Done:
        self._capsys.readouterr()
        code = main(["judge", *words])
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def state(self) -> dict[str, object]:
        """All files apart from outputs, with what changes when they are touched."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.parts[-2] != ".git"]
        kept = [path for path in files if "outputs" not in path.parts and ".git" not in path.parts]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in kept}


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Project(folder, capsys)
