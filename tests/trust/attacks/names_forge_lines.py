"""Names of files with line breaks: what follows would be a line of its own on the terminal."""

import pytest

from manyheads.runner.commands.pack.destination import refuse_existing
from manyheads.runner.data.links import refuse_leaving
from manyheads.runner.errors import ConfigurationError


def attack(scene):
    name = "net\x1b[2J\nerror: forged"
    project = scene.new("project", net=scene.harmless, **{name: scene.harmless, "deep": "x=" + "-" * 100_000 + "1"})
    done = scene.here("init", str(project))
    assert done.code == 2
    assert "net\\x1b[2J\\nerror: forged.py" in done.out
    (project / f"{name}.txt").symlink_to("/etc/passwd")
    with pytest.raises(ConfigurationError, match=r"\\x1b\[2J\\nerror: forged.txt points outside"):
        refuse_leaving(project / f"{name}.txt", str(project.resolve()))
    (project / "shards").symlink_to(project / "missing")
    with pytest.raises(ConfigurationError, match="already exists"):
        refuse_existing(str(project / "shards"))
