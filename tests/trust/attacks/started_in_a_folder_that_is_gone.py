"""Another user creates the directory again where the user's run was started, with a module of the same name."""

import shutil

from manyheads.runner.option.locate import own_folders
from manyheads.runner.provenance.started_in import find_where_started
from manyheads.runner.run.run_folder import RunFolder
from tests.trust.attacks.scene import SMALL

NEEDS_STRANGER = True


def attack(scene):
    scene.new("tmp", mode=0o1777)
    job = scene.new("tmp/job", my_package=scene.harmless)
    past = RunFolder(scene.folder / "past")
    words = ("model=custom", "model._target_=my_package.Net", *SMALL, f"hydra.run.dir={past.path}")
    done = scene.user("train", *words, cwd=job)
    assert done.code == 0, done.err
    past.result.unlink()
    shutil.rmtree(job)
    assert scene.stranger(f'mkdir {job}; printf %s "$1" > {job}/my_package.py', scene.evil) == ""
    find_where_started(past)
    assert str(job) not in own_folders()
    done = scene.user("resume", str(past.path))
    scene.assert_nothing_ran()
