"""With umask 002, somebody of the group writes the id of the user's process into the heartbeat, to have it killed."""

import os

from manyheads.runner.run.heartbeat import Heartbeat
from tests.trust.attacks.scene import STRANGER, open_umask

NEEDS_STRANGER = True


def attack(scene):
    runs = scene.new("runs")
    os.chown(runs, -1, STRANGER)
    runs.chmod(0o2775)
    path = runs / "logs" / "heartbeat"
    with open_umask():
        path.parent.mkdir()
        Heartbeat.create(path, ranks=1)
    before = path.read_bytes()
    scene.stranger(f"printf x | dd of={path} bs=1 seek=24 conv=notrunc")
    assert path.read_bytes() == before
