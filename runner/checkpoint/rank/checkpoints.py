"""Checkpoints: when they are due, and how they are written so that none is ever incomplete on disk."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.runner.checkpoint.background_save import BackgroundSave, FinishedSave
from manyheads.runner.checkpoint.rank.checkpoint_content import View, best_of, kept
from manyheads.runner.checkpoint.rank.lazy import RankGroup, folder_format, replaced, sizes, tensors
from manyheads.runner.checkpoint.rank.load import VERSION, complete, load
from manyheads.runner.checkpoint.retention import Retention, interval
from manyheads.runner.machine.hardware import memory_bytes
from manyheads.runner.option import locate
from manyheads.runner.option.sections import CheckpointSection
from manyheads.runner.run import checkpoint_places
from manyheads.runner.run.checkpoint_places import StateDict
from manyheads.runner.run.files import also_named, make_folder, matching, remove, remove_leftovers, whole_file
from manyheads.runner.run.run_folder import RunFolder

LAST, BEST = "last.pt", "best.pt"
Work = Callable[[Callable[[], bool]], None]  # writes; its argument tells whether the checkpoint is still wanted


class CheckpointStore:
    """Writes a run's checkpoints. ``every``: "1epoch", "2epochs", ..., updates, or 0; ``keep``: how many of the newest.

    ``format``: "single" for a file, "sharded" for a folder to which each rank writes its own part, "auto" for a file up
    to half of the memory of the first rank's machine. ``asynchronous``: files are written while training continues.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        every: int | str,
        keep: int | Retention,
        format: str = "single",
        asynchronous: bool = False,
    ):
        self._every_epochs, self._every_steps = interval(every)
        self.enabled = bool(self._every_epochs or self._every_steps)
        self._folder, self.format, self.asynchronous = folder, format, asynchronous
        self._keep = keep if isinstance(keep, Retention) else Retention(keep)
        self._flight: BackgroundSave | None = None
        self._host: Any = None  # keeps memory for copies of a GPU's tensors

    @classmethod
    def of(cls, folder: RunFolder, section: CheckpointSection) -> "CheckpointStore":
        """The checkpoints that a run config's section asks for."""
        keep = Retention(section.keep, section.keep_every, section.keep_hours)
        return cls(folder, every=section.every, keep=keep, format=section.format, asynchronous=section.asynchronous)

    def due_after_step(self, step: int) -> bool:
        """Whether to save after an update; also for those that checkpoint.keep_every keeps."""
        intervals = (self._every_steps, self._keep.every if self.enabled else 0)
        return any(every and step % every == 0 for every in intervals)

    def due_after_epoch(self, epoch: int) -> bool:
        return self._every_epochs > 0 and epoch % self._every_epochs == 0

    def save(
        self, view: View, ranks: RankGroup, *, step: int, best: bool, say: Callable[[str], None] = lambda message: None
    ) -> FinishedSave | None:
        """Write a checkpoint in the run's format; all ranks call it.

        Returns once the checkpoint is complete, or None if it is still being written, see ``wait_for_save``.
        ``best``: whether the evaluated weights are the best so far; ``say``: shows a message. Raises OSError;
        where every rank writes a part, on every rank if one could not.
        """
        self._say = say
        if self.format == "auto":
            self.format = self._fitting_format(view.shares(), ranks)
        writer = self._save_shares if self.format == "sharded" else self._save_single
        work = writer(view, ranks, step=step, best=best)
        if self.asynchronous:
            self._flight = BackgroundSave(work, step=step)
            return None
        work(lambda: True)
        return FinishedSave(step, waited=0.0)

    def _fitting_format(self, state: StateDict, ranks: RankGroup) -> str:
        """A file if ``state`` fits into half of the memory of the first rank's machine, else a folder."""
        of_ranks, most = ranks.gather(sizes(state)), ranks.gather(memory_bytes() // 2)[0]
        size = sum(max(by_key.get(key, 0) for by_key in of_ranks) for key in {*chain(*of_ranks)})
        if size <= most:
            return "single"
        self._say(f"checkpoints are sharded: {size / 1e9:.1f} GB are more than half of this machine's memory")
        return "sharded"

    def _copies(self, originals: list[Tensor], ranks_here: int = 1) -> list[Tensor]:
        """Copies on the CPU of tensors on a GPU and, if training continues meanwhile, of all others."""
        rest: Callable[[Any], Any] = kept if self.asynchronous else lambda value: value
        if self._host is None and any(tensor.is_cuda for tensor in originals):
            host_copies = locate.load("manyheads.runner.checkpoint.rank.host_copies.HostCopies")
            self._host = host_copies(memory_bytes() // 4 // ranks_here, self._say)
        return rest(originals) if self._host is None else self._host.of(originals, rest)

    def _save_single(self, view: View, ranks: RankGroup, *, step: int, best: bool) -> Work:
        """Writes last.pt and, with ``best``, the evaluated weights to best.pt."""
        state = view.whole()
        if not ranks.records:
            return lambda is_wanted: None
        copies = iter(self._copies([tensor for _, tensor in tensors(state)]))
        state = {"version": VERSION, **replaced(state, Tensor, lambda _: next(copies))}
        return lambda is_wanted: self._write(state, step=step, best=best)

    def _write(self, state: StateDict, *, step: int, best: bool) -> None:
        folder = self._folder.checkpoints
        make_folder(folder)
        self._folder.sync_tables()
        with whole_file(folder / LAST) as file:
            torch.save(state, file)
        if best:
            self.save_best(best_of(state))
        if self._keep.keeps_any:
            also_named(folder / LAST, folder / f"step_{step:08}.pt")
        self._remove_others(folder / LAST, folder / BEST if best else None)

    def _save_shares(self, view: View, ranks: RankGroup, *, step: int, best: bool) -> Work:
        """Writes a folder with each rank's part of the state and, with ``best``, one of its weights."""
        folder, sharded = self._folder.checkpoints, folder_format()
        path = checkpoint_places.fresh(folder, "step", step)
        save = sharded.Save(path, {"version": VERSION, **view.shares()}, ranks, step=step)
        save.copy(self._copies)

        def write(is_wanted: Callable[[], bool]) -> None:
            try:
                everyone = sharded.written(save, ranks, is_wanted if self.asynchronous else None)
                if ranks.rank == 0:
                    self._folder.sync_tables()
                    best_place = checkpoint_places.fresh(folder, "best", step) if best else None
                    save.finish(everyone, best=best_place)
                    self._remove_others(path, best_place)
            except OSError as error:
                if ranks.rank == 0:
                    remove_leftovers(folder)  # which would leave no room on the disk for reporting the failure
                message = f"{error.strerror}, so a checkpoint was not written; the previous one is intact"
                raise OSError(error.errno, message, str(path)) from error

        return write

    def wait_for_save(self) -> FinishedSave | None:
        """Wait for a save that is still being written; None if there was none. Raises what it raised."""
        flight, self._flight = self._flight, None
        return flight.wait() if flight is not None else None

    def give_up(self) -> None:
        """Called when training has failed: a save in progress need not be completed."""
        if self._flight is not None:
            self._flight.give_up()

    def last(self, *, otherwise: str | None = None, ranks: RankGroup | None = None) -> StateDict | None:
        """The checkpoint to resume from: the run's own last one, else that of another run at ``otherwise``, else None.

        ``ranks``: the ranks that load it together, if several do. Raises RuntimeError if they see different ones, as on
        a network's file system soon after it was written: some would continue with other weights than others.
        """
        path = self._folder.last_checkpoint
        name = path.name if path.exists() else None
        seen = {} if ranks is None else {name: rank for rank, name in enumerate(ranks.gather(name))}
        if len(seen) > 1:
            words = ", ".join(f"{name or 'none'} on rank {rank}" for name, rank in seen.items())
            raise RuntimeError(f"ranks see different checkpoints in {self._folder.checkpoints}: {words}. Resume again.")
        if name is not None:
            return complete(path, ranks) | {"is_elsewhere": False}
        if otherwise is None:
            return None
        state = complete(Path(otherwise).resolve(), ranks)
        return state | {"source": otherwise, "tables": {}, "is_elsewhere": True}  # the tables are the other run's

    def take_best(self, source: str | Path, best: StateDict | None, *, copies: bool) -> bool:
        """Whether the best.pt beside ``source``, another run's checkpoint, is of the evaluation that was ``best`` then.

        ``copies``: copy it into this run's folder.
        """
        path = checkpoint_places.best(Path(source).resolve().parent)
        if best is None or not path.exists():
            return False
        state = load(path)
        progress = state.get("progress")
        key = "step" if "step" in best else "epoch"  # it was within an epoch, or at its end
        if not isinstance(progress, dict) or progress.get(key) != best[key]:
            return False
        if copies:
            make_folder(self._folder.checkpoints)
            if path.is_dir():
                folder_format().copy_folder(path, self._folder.checkpoints / path.name)
            else:
                self.save_best(best_of(state))
        return True

    def save_best(self, content: StateDict) -> None:
        """Write best.pt. ``content``: what ``best_of`` returned."""
        make_folder(self._folder.checkpoints)
        with whole_file(self._folder.checkpoints / BEST) as file:
            torch.save(content, file)

    def _remove_others(self, last: Path, best: Path | None) -> None:
        """Remove the checkpoints that ``last``, and ``best`` if there is a new one, replace."""
        folder = self._folder.checkpoints
        kept = self._keep.staying(checkpoint_places.by_step(folder))
        files = matching(folder, "step_*.pt") if self._keep.keeps_any else []
        lasts = [folder / LAST, *files, *checkpoint_places.folders(folder, "step")]
        bests = [folder / BEST, *checkpoint_places.folders(folder, "best")] if best else []
        for path in [*lasts, *bests]:
            if path not in (last, best, *kept):
                remove(path)
