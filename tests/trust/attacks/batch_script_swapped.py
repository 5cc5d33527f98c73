"""Somebody who can write above a run's folder replaces its batch script before Slurm reads it."""

from pathlib import Path

from manyheads.launchers.slurm import slurm_commands
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.run.program import ProgramOutput
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config
from tests.trust.attacks.scene import SMALL

EVIL = "#!/bin/sh\ntouch mark\n"


def attack(scene):
    folder, submitted = RunFolder(scene.new("run")), []

    def swapped(*command, given=b"", **_):
        for file in folder.path.glob("*.sh"):
            file.write_text(EVIL)
        submitted.append(given.decode() or Path(command[-1]).read_text())
        return ProgramOutput(0, b"7\n", "")

    scene.patch.setattr(slurm_commands, "_run", swapped)
    scene.patch.setattr(slurm_commands, "missing", lambda: None)
    run = RunConfig.of(config(*SMALL, "launcher=slurm", "launcher.follow=false"))
    folder.write_config(run.written)
    launcher = run.launcher.kind(name="slurm", **run.launcher.arguments())
    launcher.launch_elsewhere(folder, run, [])
    assert submitted != [EVIL]
    assert "manyheads.runner resume" in submitted[0]
