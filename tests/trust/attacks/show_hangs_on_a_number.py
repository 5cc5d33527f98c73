"""One integer in base 60, which PyYAML computes in quadratic time, or with many digits, in a run that was received."""

import time

from tests.in_process import config
from tests.trust.foreign import given


def attack(scene):
    run = given(scene.folder / "theirs", config())
    plain = (run / "run.yaml").read_text()
    for number in (":".join(["1"] * 400_000), "9" * 800_000, "0x" + "f" * 800_000, "1_" * 400_000 + "1"):
        (run / "run.yaml").write_text(f"{plain}zz: {number}\n")
        for command in ("show", "report", "resume", "trust", "list"):
            began = time.monotonic()
            scene.here(command, str(run))
            assert time.monotonic() - began < 15, (command, number[:9])
