"""With umask 002, somebody of the group replaces the folder of what the user trusts."""

import os

from manyheads.runner.run import seal
from tests.trust.attacks.scene import STRANGER, open_umask

NEEDS_STRANGER = True


def attack(scene):
    home = scene.new("home")
    os.chown(home, -1, STRANGER)
    home.chmod(0o2750)  # the group may enter and list, not write
    for name in ("XDG_STATE_HOME", "MANYHEADS_STATE"):
        scene.patch.delenv(name, raising=False)
    scene.patch.setenv("HOME", str(home))
    configs = scene.new("configs")
    with open_umask():
        seal.record(scene.new("run"), {"run.yaml": b""})
    assert (home / ".local/state/manyheads/key").exists()
    name = seal._trusted_file(configs).name
    about = f'{{"folder": "{configs}", "covers": null}}'
    scene.stranger(
        f'cd {home}/.local/state && mv manyheads gone && mkdir -p manyheads/trusted && printf %s "$1" > '
        f"manyheads/trusted/{name} && chmod -R a+rX manyheads",
        about,
    )
    assert not seal.is_own_place(configs)
