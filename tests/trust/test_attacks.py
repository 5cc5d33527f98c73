"""Every attack of ``tests/trust/attacks`` is refused, or has no effect."""

import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

from tests.trust.attacks.scene import Scene

pytestmark = pytest.mark.ci

FOLDER = Path(__file__).parent / "attacks"
ATTACKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "scene"))
CAN_BE_ANOTHER = os.geteuid() == 0 and shutil.which("setpriv")


@pytest.fixture
def scene(monkeypatch, capfd):
    folder = Path(tempfile.mkdtemp())  # other users can't enter pytest's
    folder.chmod(0o755)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.chdir(folder)
    yield Scene(folder, monkeypatch, capfd.readouterr)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(scene, name):
    attack = import_module(f"tests.trust.attacks.{name}")
    if getattr(attack, "NEEDS_STRANGER", False) and not CAN_BE_ANOTHER:
        pytest.skip("only the superuser can be another user")
    attack.attack(scene)
