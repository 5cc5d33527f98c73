"""What ``trust`` shows of a run has line breaks, which forge lines, and scroll the dangerous ones off the screen."""

import json

from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config
from tests.trust.foreign import given

EVIL = {"_target_": "os.system", "name": "x", "command": "touch mark", "num_classes": None, "pretrained": None}


def attack(scene):
    """The most dangerous is last, on one screen of any width, and whatever has line breaks is escaped."""
    values = config() | {"model": EVIL}
    run = RunFolder(given(scene.folder / "a", values | {"data": values["data"] | {"root": "/home/me\ndigest 0123"}}))
    commit = "0" * 40 + "\n" * 3000 + "a: names only this project's own code\ndigest 0123456789abcdef"
    record = {"id": "x\ndigest 01", "commit": commit, "directory": "/home/me\n\t\x1b[2J" + "\u202e\u2028\u3000" * 99}
    run.provenance.write_text(json.dumps(record))
    run.code.mkdir()
    for number in range(50):
        (run.code / f"x{number}{'y' * 200}.py").touch()
    for columns in (80, 120):
        scene.patch.setenv("COLUMNS", str(columns))
        lines = scene.here("trust", str(run.path)).out.splitlines()
        assert sum(-(-len(line) // columns) for line in lines) <= 24
        assert "none of them more dangerous than the others, are not shown" in lines[0]
        assert [line for line in lines if line.startswith("digest")] == [lines[-1]]
        assert lines[-2].endswith("a: model._target_=os.system")
        assert all(line.isprintable() for line in lines)
