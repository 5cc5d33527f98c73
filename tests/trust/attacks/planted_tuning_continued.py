"""A tuning's folder holds rows that somebody else wrote: they would decide the answer, and what is removed."""

from manyheads.runner.answers.measure.rows import COMPLETED, RunLedger, RunRow
from tests.trust.attacks.scene import SMALL


def attack(scene):
    words = ("tune", *SMALL, "--budget", "1s", f"hydra.sweep.dir={scene.folder}/shared")
    with scene.attackers_key():
        scene.refused(*words, naming="--budget")
        row = RunRow(0, "steps", 0, 0, "base", 1, str(scene.folder / "mine"), 1.0, state=COMPLETED)
        RunLedger(scene.folder / "shared").write(row)
    scene.refused(*words, naming="holds runs that you did not record")
