"""Another user's folder as hydra.run.dir: links to the user's files appear in it as soon as somebody looks inside."""

import shutil
import subprocess

import pytest

from tests.trust.attacks.scene import SMALL, STRANGER

NEEDS_STRANGER = True
PLANT = """
import ctypes, os, sys, time
folder, private, wait = sys.argv[1:]
os.mkdir(folder); os.chmod(folder, 0o777)
libc = ctypes.CDLL(None); watch = libc.inotify_init(); libc.inotify_add_watch(watch, folder.encode(), 0x20 | 0x10)
print("waiting", flush=True)
os.read(watch, 4096)
time.sleep(float(wait))
for name, to in ((".hydra", private + "/app"), ("run.log", private + "/bashrc")):
    try: os.symlink(to, folder + "/" + name)
    except OSError: pass
"""


def attack(scene):
    if (python := shutil.which("python3", path="/usr/bin:/bin")) is None:
        pytest.skip("other users need a Python of the system")
    shared, private = scene.new("shared", mode=0o1777), scene.new("private", mode=0o700)
    (private / "app").mkdir()
    (private / "app" / "config.yaml").write_text("precious: true\n")
    (private / "bashrc").write_text("# mine\n")
    for wait in ("0", "0.002"):
        folder = shared / f"run{wait}"
        user = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
        words = [*user, python, "-c", PLANT, str(folder), str(private), wait]
        with subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/") as racer:
            assert racer.stdout.readline() == b"waiting\n"
            scene.user("train", *SMALL, f"hydra.run.dir={folder}")
            racer.kill()
        assert {path.name for path in (private / "app").iterdir()} == {"config.yaml"}
        assert (private / "app" / "config.yaml").read_text() == "precious: true\n"
        assert (private / "bashrc").read_text() == "# mine\n"
