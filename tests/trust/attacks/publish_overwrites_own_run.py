"""A received run claims the id of one that the user has published, so publishing it changes that one."""

import json
import shutil

from manyheads.runner.run.ledger import Entry, Ledger
from manyheads.runner.run.run_folder import RunFolder
from tests.trust.attacks.scene import SMALL


def attack(scene):
    from manyheads.launchers.companions.publishing.tracked_run import tracked_run

    own, theirs = (RunFolder(scene.new(name) / "run") for name in ("own", "theirs"))
    assert scene.user("train", *SMALL, f"hydra.run.dir={own.path}").code == 0
    Ledger(own.path.parent).create({}, Entry(0, "run", ["seed=1"], state="completed"))
    shutil.copytree(own.path.parent, theirs.path.parent, dirs_exist_ok=True)
    config = theirs.read_config()
    with scene.attackers_key():
        RunFolder(theirs.path).write_config(config | {"notes": "of somebody else"})
    theirs = RunFolder(theirs.path)
    mine, claimed = tracked_run(own), tracked_run(theirs)
    assert mine.key == json.loads(theirs.provenance.read_text())["id"]
    assert not {claimed.key, claimed.group.key} & {mine.key, mine.group.key}
    assert tracked_run(RunFolder(theirs.path)).key == claimed.key
    assert f"trackers' run {mine.key}" in scene.here("trust", str(theirs.path)).out
