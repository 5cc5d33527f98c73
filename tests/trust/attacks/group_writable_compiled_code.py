"""With umask 002, somebody of the group replaces a compiled library, which the next run of the user loads."""

import os
from pathlib import Path

from manyheads.launchers.environment import folders
from tests.trust.attacks.scene import STRANGER, open_umask

NEEDS_STRANGER = True


def attack(scene):
    home = scene.new("home")
    os.chown(home, -1, STRANGER)
    home.chmod(0o2750)
    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        scene.patch.delenv(name, raising=False)
    scene.patch.setenv("HOME", str(home))
    with open_umask():
        compiled = Path(folders()["TORCHINDUCTOR_CACHE_DIR"])
        library = compiled / "kernel.so"
        library.write_text("mine")
    assert compiled.is_relative_to(home)
    scene.stranger(f"echo evil > {library}; cd {home}/.cache && mv manyheads gone && mkdir -p {compiled}")
    assert library.read_text() == "mine"
