"""A received run's keys have control characters, its tables impossible times or holes, its config endless keys."""

import resource
import time

from tests.in_process import config
from tests.trust.foreign import given

COLUMNS = "epoch,step,started,train_seconds,train_loss,val_loss,val_acc1"
FORGED = '"X\\e]0;x\\a\\x9b31m\\u202eFORGED": 1\n'


def attack(scene):
    runs = [given(scene.folder / name, config()) for name in ("one", "two")]
    plain, words = (runs[0] / "run.yaml").read_text(), (*map(str, runs), "--to", str(scene.folder / "page"))
    for run in runs:
        (run / "epochs.csv").write_text(f"{COLUMNS}\n1,1,1e300,1,1,1,1\n2,2,inf,1,1,1,1\n")
    long = f"model.name: {'a ' * 150_000}\n"
    for change in (FORGED, "".join(f"k{number}: 1\n" for number in range(60_000)), long):
        (runs[0] / "run.yaml").write_text(plain + change)
        began = time.monotonic()
        for command in ("report", "diff", "show"):
            done = scene.here(command, *(words if command == "report" else words[: 1 + (command == "diff")]))
            assert "Traceback" not in done.err, done.err
            assert not {"\x1b", "\x9b", "\u202e"} & {*done.out, *done.err}
        assert time.monotonic() - began < 30
    with open(runs[0] / "epochs.csv", "r+b") as file:
        file.truncate(2**31 - 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scene.here("show", str(runs[0]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KB
