"""The user's own search comes back with a module: ``resume`` within that folder would repeat ``model=net.py:Net``."""

import shutil

from manyheads.runner.run.ledger import Ledger
from tests.trust.attacks.scene import SMALL


def attack(scene):
    project, received = scene.new("project", net=scene.harmless), scene.new("received", net=scene.evil)
    search = ("hydra/sweeper=search", "optimizer.lr=interval(0.01,0.02)", "hydra.sweeper.n_trials=1")
    words = ["-m", "model=net.py:Net", *SMALL, "logger=[]", *search, f"hydra.sweep.dir={received}/search"]
    scene.patch.chdir(project)
    Ledger(received / "search").create({}, arguments=words, is_search=True)
    done = scene.user("resume", "search", cwd=received)
    assert done.code == 0, done.err
    scene.assert_nothing_ran()
    shutil.rmtree(project)
    scene.patch.chdir(received)
    scene.refused("resume", "search", naming="Restore it")
    scene.assert_nothing_ran()
