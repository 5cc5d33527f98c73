"""A folder with code and data, in which runs are asked for."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.conftest import RUN, Done, execute

NET = """
import os
from pathlib import Path

from torch import nn

FAULT = Path(__file__).with_name("fault")  # says what the next training does after which update


class Net(nn.Linear):
    def __init__(self, num_inputs: int, num_classes: int):
        super().__init__(num_inputs, num_classes)
        self.updates = 0

    def forward(self, samples):
        self.updates += self.training
        if FAULT.exists() and self.updates > int((words := FAULT.read_text().split())[1]):
            FAULT.unlink()
            if words[0] == "kill":
                os.kill(os.getpid(), 9)
            raise RuntimeError("as the fault says")
        return super().forward(samples)
"""
WORDS = (
    *("model=net.py:Net", "data=table", "data.root=table.csv", "data.target=label", "data.batch_size=8"),
    *("trainer.epochs=2", "trainer.device=cpu", "parallel=single", "launcher=inline", "launcher.threads_per_rank=1"),
    *("checkpoint.every=1", "logger=[]"),
)


class Desk:
    """A folder with code and data, in which runs are asked for."""

    def __init__(self, folder: Path):
        self.folder, self.fault = folder, folder / "fault"
        (folder / "net.py").write_text(NET)
        rows = (f"{number % 7},{number % 5},{'no' if number % 7 < number % 5 else 'yes'}" for number in range(40))
        self.table = folder / "table.csv"
        self.table.write_text("\n".join(("one,other,label", *rows)) + "\n")

    def ask(self, *words: str) -> Done:
        return execute(sys.executable, str(RUN), "--once", *WORDS, *words, "--json", cwd=self.folder)

    def answer(self, *words: str) -> str:
        """The folder of the run that answers."""
        done = self.ask(*words)
        assert done.code == 0, done.out + done.err
        result = json.loads(done.out)["result"]
        assert result["status"] == "completed"
        return result["folder"]

    def sweep(self, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The answer of a sweep whose jobs are asked for, and its jobs by number."""
        command = (sys.executable, str(RUN), "-m", "--once", *WORDS, *words, "--json")
        # Cold: jobs are forks of this command, and Arrow aborts those if it is a fork of the tests' zygote itself.
        done = execute(*command, cwd=self.folder, cold=True)
        assert done.code == 0, done.out + done.err
        result = json.loads(done.out)["result"]
        return result, sorted(result["jobs"], key=lambda job: int(job["job"]))

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in (self.folder / "outputs").rglob("run.yaml"))
