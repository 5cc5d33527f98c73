"""Others may write to a part of the folder with the user's own file: what it imports is replaced, never the file."""

import os
import shutil

from manyheads.runner.provenance.copies import copies, import_copies
from manyheads.runner.run.run_folder import RunFolder
from tests.trust.attacks.scene import SMALL, STRANGER

NEEDS_STRANGER = True


def attack(scene):
    mine = scene.new("mine", net="import helper, part.inner\n" + scene.harmless, helper="")
    scene.new("mine/part", __init__="", inner="")
    past = RunFolder(scene.folder / "past")
    done = scene.user("train", f"model={mine}/net.py:Net", *SMALL, f"hydra.run.dir={past.path}")
    assert done.code == 0, done.err
    past.result.unlink()
    (mine / "__pycache__").mkdir(exist_ok=True)
    for folder in (mine / "__pycache__", mine / "part", mine):
        os.chown(folder, STRANGER, STRANGER)
        import_copies(past)
        snapshot = os.environ["MANYHEADS_COPIES"]
        assert str(copies(past, past.read_config())["model._target_"]).startswith(snapshot), folder
        os.chown(folder, 0, 0)
    import_copies(past)
    assert not os.environ["MANYHEADS_COPIES"]
    os.chown(mine, STRANGER, STRANGER)
    assert scene.stranger(f'printf %s "$1" > {mine}/new; mv -f {mine}/new {mine}/helper.py', scene.evil) == ""
    done = scene.user("resume", str(past.path))
    assert done.code == 0, done.err
    assert f"others can write to {mine}" in done.err
    scene.assert_nothing_ran()
    shutil.rmtree(past.code)
    past.result.unlink()
    scene.refused("resume", str(past.path), naming=f"trust {mine}")
