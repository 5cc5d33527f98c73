"""A TMPDIR without sticky bit: somebody renames the user's folders to names that the next command sweeps away."""

import os
import tempfile

from manyheads.runner.run import scratch

NEEDS_STRANGER = True


def attack(scene):
    shared = scene.new("shared", mode=0o777)
    for name in ("old", "locked"):
        (shared / name).mkdir()
        (shared / name / "thesis.tex").write_text("mine")
    (shared / "locked" / "lock").touch()
    os.utime(shared / "old", (0, 0))
    scene.patch.setattr(tempfile, "tempdir", str(shared))
    assert scene.stranger(f"cd {shared} && mv old manyheads-new-old && mv locked manyheads-0123abcd-0") == ""
    scratch.sweep_all()
    assert len(list(shared.rglob("thesis.tex"))) == 2
    with scratch.folder() as own:
        assert not own.is_relative_to(shared)
