"""The copy of a run in object storage holds the keys of its machines, with which anyone takes part in it."""

import hashlib

from manyheads.runner.run.objects import MissingObject
from manyheads.runner.run.run_folder import RunFolder


class Bucket:
    """Object storage in memory."""

    address = "s3://bucket/run"

    def __init__(self):
        self.stored = {}

    def read(self, name):
        if name not in self.stored:
            raise MissingObject
        return self.stored[name]

    def store(self, name, file):
        file.seek(0)
        self.stored[name] = file.read()

    def sha256(self, name):
        return hashlib.sha256(self.stored[name]).hexdigest()

    def list(self, below):
        return []

    def remove(self, name):
        self.stored.pop(name)


def attack(scene):
    from manyheads.launchers.companions.mirror.upload import Mirror
    from manyheads.launchers.nodes import wire
    from manyheads.launchers.nodes.gathering import meet

    run, bucket = RunFolder(scene.new("run")), Bucket()
    run.config.write_text("format: 2\n")
    run.logs.mkdir()
    meet("127.0.0.1", run)
    scene.patch.setenv("XDG_STATE_HOME", str(run.path / "state"))  # as on Kubernetes' and SkyPilot's machines
    wire.own_key()
    keys = [path.read_bytes() for path in (run.logs / "nodes.key", *run.path.joinpath("state").rglob("key"))]
    assert len(keys) == 2
    Mirror(run, bucket).update()
    assert any(name.startswith("files/run.yaml") for name in bucket.stored)
    assert not any(key in content for key in keys for content in bucket.stored.values())
