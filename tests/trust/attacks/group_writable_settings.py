"""Somebody of the group adds a package to the list of those that the user always trusts."""

from manyheads.runner.errors import warn
from manyheads.runner.trust import trust_store


def attack(scene):
    warn.cache_clear()
    settings = scene.new("settings")
    scene.patch.setenv("XDG_CONFIG_HOME", str(settings))
    file = settings / trust_store.FILE
    file.write_text("trust: [evil]\n")
    assert trust_store.of_file() == ["evil"]
    for each in (file, settings):
        each.chmod(0o777)
        assert trust_store.of_file() == []
        each.chmod(0o755)
    assert "since others may write to" in scene.output().err
