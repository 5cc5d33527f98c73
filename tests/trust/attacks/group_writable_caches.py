"""With umask 002, somebody of the group puts a wheel, tokens, or an index where the user's next run looks for them."""

import os
import stat

from manyheads.runner.errors import warn
from manyheads.runner.machine.user_folders import cache_folder
from manyheads.runner.run.objects import Cache
from manyheads.runner.run.objects.storage.disk_cache import DiskCache
from tests.trust.attacks.scene import STRANGER, open_umask

NEEDS_STRANGER = True


def attack(scene):
    warn.cache_clear()
    home = scene.new("home")
    os.chown(home, -1, STRANGER)
    home.chmod(0o2750)
    scene.patch.delenv("XDG_CACHE_HOME", raising=False)
    scene.patch.setenv("HOME", str(home))
    with open_umask():
        before = home / ".cache" / "manyheads" / "tar"
        before.mkdir(parents=True)  # by an earlier version
        folder = cache_folder("tokens")
        stored = DiskCache(Cache(folder.parent / "storage", 10**6)).folder
    for each in (folder, stored):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
        assert "denied" in scene.stranger(f"echo evil > {each}/known")
        assert "denied" in scene.stranger(f"mv {each} {each}.gone")
    scene.output()
    assert cache_folder("tar") is None
    assert "others may write" in scene.output().err
