"""Somebody who can write above the folder of ``judge --code`` replaces what its ranks read before they import code."""

import json

from manyheads.launchers.launch import launch
from manyheads.runner.answers.judge.revision import BaseCode
from manyheads.runner.answers.measure import purposes, runs
from tests.in_process import config
from tests.trust.attacks.scene import SMALL


def attack(scene):
    theirs = scene.new("theirs", evil=scene.evil + "\ndef main(path): pass\n")
    task = json.dumps({"rank": "evil", "project": str(scene.folder), "folders": [str(theirs)]})

    def swapped(plan, **how):
        for name in ("judge_code.json", "judge.json"):
            (plan.folder.path / name).write_text(task)
        return launch(plan, **how)

    scene.patch.setattr(runs, "launch", swapped)
    judged = runs.Runs(scene.new("judged"), BaseCode(scene.new("mine"), "a" * 40, scene.new("tree")))
    judged.ledger.create({})
    row = judged.start(config(*SMALL), purposes.facts(), arm="change")
    scene.assert_nothing_ran()
    assert row.state == "completed", row.reason
