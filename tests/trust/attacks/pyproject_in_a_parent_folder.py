"""Another user's pyproject.toml and module above the user's trusted project take the place of the user's module."""

import re

NEEDS_STRANGER = True


def attack(scene):
    shared = scene.new("tmp", mode=0o1777)
    project = scene.new("tmp/project", net=scene.harmless)
    done = scene.user("init", "--yes", "--data", "none", cwd=project)
    assert done.code == 0, done.err
    (digest,) = re.findall(r"^digest (\w+)$", scene.here("trust", str(project)).out, re.MULTILINE)
    assert scene.here("trust", str(project), "--yes", digest).code == 0
    words = (scene.evil, '[tool.manyheads]\nconf = "project/conf"\n')
    scene.stranger(f'printf %s "$1" > {shared}/net.py; printf %s "$2" > {shared}/pyproject.toml', *words)
    assert (shared / "pyproject.toml").exists()
    run = scene.folder / "run"
    data = ("trainer.max_steps=1", "data=synthetic", "data.image_size=32", "logger=[]", f"hydra.run.dir={run}")
    done = scene.user("train", "experiment=net", *data, cwd=project)
    assert done.code == 0, done.err
    scene.assert_nothing_ran()
    assert f"{project}/net.py:Net" in (run / "run.yaml").read_text()
