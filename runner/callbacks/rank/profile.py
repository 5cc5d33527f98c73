"""callbacks=profile: a trace of a few updates by torch's profiler, which shows what takes their time.

Source: https://docs.pytorch.org/docs/stable/profiler.html.
"""

import gzip

from torch.profiler import ProfilerActivity, profile

from manyheads.runner.callbacks.callback import Callback, RunContext
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import scratch
from manyheads.runner.run.files import make_folder, write_whole
from manyheads.runner.run.json_types import ResultJson

FOLDER = "profile"
ROWS = 30  # of the table


class Profile(Callback):
    """Writes profile/rank<n>.pt.trace.json.gz, and next to it a table of the operations that took longest.

    ``first_step``: the first update in the trace, counted from where the run starts or resumes; ``steps``: number of
    traced updates, which run more slowly than others; ``memory``, ``stacks``: also record allocations, Python stacks.
    """

    every_rank = True

    def __init__(self, first_step: int = 20, steps: int = 5, *, memory: bool = False, stacks: bool = False):
        for key, value in {"first_step": first_step, "steps": steps}.items():
            if value < 1:
                raise ConfigurationError.at(f"callbacks.profile.{key}", value, ": set a number of 1 or more.")
        self.first_step, self.steps, self.memory, self.stacks = first_step, steps, memory, stacks
        self._profiler: profile | None = None
        self._is_written = False

    def on_start(self, run: RunContext) -> None:
        self.run, self._on_gpu = run, run.config["trainer"]["device"] == "cuda"
        self._begin_after = run.step + self.first_step - 1
        self._begin(run.step)

    def on_update(self, step: int) -> None:
        if self._profiler is None:
            self._begin(step)
            return
        self._profiler.step()
        if step == self._begin_after + self.steps:
            self._write()

    def on_end(self, result: ResultJson) -> None:
        if self._profiler is not None:
            self._write()
        if self.run.rank > 0:
            return
        if self._is_written:
            self.run.say(
                f"traces of {self.steps} updates: {self.run.folder / FOLDER}, open them at https://ui.perfetto.dev"
            )
        else:
            self.run.say(
                f"warning: callbacks.profile.first_step={self.first_step}: the run ended before that step, "
                "so nothing was traced."
            )

    def close(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None

    def _begin(self, step: int) -> None:
        if step != self._begin_after:
            return
        devices = [ProfilerActivity.CUDA] if self._on_gpu else []
        profiler = profile(
            activities=[ProfilerActivity.CPU, *devices],
            record_shapes=True,
            profile_memory=self.memory,
            with_stack=self.stacks,
            acc_events=True,  # otherwise torch warns that only the last cycle's are kept; there is one
        )
        profiler.start()
        self._profiler = profiler

    def _write(self) -> None:
        seen, folder = self._profiler, self.run.folder / FOLDER
        assert seen is not None
        self.close()
        make_folder(folder)
        name = f"rank{self.run.rank}"
        with scratch.folder() as aside:
            plain = aside / "trace.json"
            seen.export_chrome_trace(str(plain))
            write_whole(folder / f"{name}.pt.trace.json.gz", gzip.compress(plain.read_bytes(), 5))
        by = "self_device_time_total" if self._on_gpu else "self_cpu_time_total"
        write_whole(folder / f"{name}.txt", seen.key_averages().table(sort_by=by, row_limit=ROWS).encode())
        self._is_written = True
