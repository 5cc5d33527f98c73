"""The copy of the user's code in a run is replaced after it was checked, before it is imported."""

from pathlib import Path

from manyheads.runner.option.locate import load
from manyheads.runner.provenance.copies import copies
from manyheads.runner.run.run_folder import RunFolder
from tests.trust.attacks.scene import SMALL

NEEDS_STRANGER = True


def attack(scene):
    mine = scene.new("mine", net=scene.harmless)
    past = RunFolder(scene.folder / "past")
    done = scene.user("train", f"model={mine}/net.py:Net", *SMALL, f"hydra.run.dir={past.path}")
    assert done.code == 0, done.err
    (mine / "net.py").write_text(scene.harmless + "# edited\n")
    copy = next(past.code.rglob("net.py"))
    copy.chmod(0o666)
    target = copies(past, past.read_config())["model._target_"]
    assert scene.stranger(f'printf %s "$1" > {copy}', scene.evil) == ""
    load(target)
    scene.assert_nothing_ran()
    file = Path(target.rpartition(":")[0])
    assert "denied" in scene.stranger(f"echo > {file}")
    scene.refused("reproduce", str(past.path), f"hydra.run.dir={scene.folder}/again", naming="is missing or not yours")
