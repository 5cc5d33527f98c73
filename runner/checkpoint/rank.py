"""Checkpoints: when they are due, and how they get to the disk and back without ever being half there."""

import copy
import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from manyheads.runner.checkpoint.every import EVERY
from manyheads.runner.checkpoint.flight import Flight, Landed
from manyheads.runner.checkpoint.retention import Retention
from manyheads.runner.checkpoint.sharded.rank.read import Ranks, opened, real
from manyheads.runner.checkpoint.sharded.rank.share import Lazy, each_of
from manyheads.runner.checkpoint.sharded.rank.write import (
    Save,
    copy_folder,
    whole_size,
    written_beside,
    written_by_all,
)
from manyheads.runner.machine.memory import memory_bytes
from manyheads.runner.run import checkpoint_places
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.files import also_named, remove, remove_leftovers, whole_file
from manyheads.runner.run.run_folder import RunFolder

VERSION = 1
LAST, BEST = "last.pt", "best.pt"
AT_ONCE = 2**28  # bytes of weights that are read before they are put into the model
SHOWN = 8  # names of weights in a message
# Settings by which kinds of optimizers differ; others come and go with versions of torch, or appear in training.
KINDS = {"momentum", "betas", "alpha", "rho", "lambd", "etas"}
PARTS = ("model", "optimizer", "scheduler", "precision", "progress", "rng", "tables")
PARTS_OF_BEST = (
    "version",
    "model",
    "progress",
)  # an optimizer's state is often twice the weights


class Checkpoints:
    """``every``: "1epoch", "2epochs", ..., a number of updates, or 0; ``keep``: which earlier ones stay.

    ``format``: "single" for a file, "sharded" for a folder to which each rank writes its own part, "auto" for a file up
    to half of the memory of the first rank's machine. ``asynchronous``: files are written while training goes on.
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
        epochs = EVERY.fullmatch(every) if isinstance(every, str) else None
        self._every_epochs = int(epochs.group(1)) if epochs else 0
        self._every_steps = 0 if epochs else int(every)
        self.enabled = bool(self._every_epochs or self._every_steps)
        self._folder, self.format, self.asynchronous = folder, format, asynchronous
        self._keep = keep if isinstance(keep, Retention) else Retention(keep)
        self._flight: Flight | None = None

    @classmethod
    def of(cls, folder: RunFolder, section: dict[str, Any]) -> "Checkpoints":
        """As a run config's section says, which may be from before there were formats."""
        return cls(
            folder,
            every=section["every"],
            keep=Retention(section["keep"], section.get("keep_every", 0), section.get("keep_hours", 0)),
            format=section.get("format", "single"),
            asynchronous=section.get("asynchronous", False),
        )

    def due_after_step(self, step: int) -> bool:
        return self._every_steps > 0 and step % self._every_steps == 0

    def due_after_epoch(self, epoch: int) -> bool:
        return self._every_epochs > 0 and epoch % self._every_epochs == 0

    def choose_format(self, state: dict[str, Any], ranks: Ranks) -> str | None:
        """Decide between the formats by the size of ``state``, as for ``save_shares``; all ranks call it.

        Returns what to say of it.
        """
        size, most = whole_size(state, ranks), ranks.gather(memory_bytes() // 2)[0]
        self.format = "sharded" if size > most else "single"
        if self.format == "single":
            return None
        return f"checkpoints are sharded: {size / 1e9:.1f} GB are more than half of this machine's memory"

    def save(self, state: dict[str, Any], *, step: int, best: bool) -> None:
        """Write last.pt and, with ``best``, the weights that were evaluated to best.pt as well."""
        state = {"version": VERSION, **(kept(state) if self.asynchronous else state)}
        self._begin(lambda _: self._write(state, step=step, best=best), step=step)

    def _write(self, state: dict[str, Any], *, step: int, best: bool) -> None:
        folder = self._folder.checkpoints
        folder.mkdir(exist_ok=True)
        with whole_file(folder / LAST) as file:
            torch.save(state, file)
        if best:
            self._save_best(state)
        if self._keep.keeps_any:
            also_named(folder / LAST, folder / f"step_{step:08}.pt")
        self._remove_others(folder / LAST, folder / BEST if best else None)

    def save_shares(self, state: dict[str, Any], ranks: Ranks, *, step: int, best: bool) -> None:
        """Write a folder with each rank's part of the state and, with ``best``, one of its weights; all ranks call it.

        ``state``: each rank's, with Shares of its tensors. Raises OSError on each where one could not write.
        """
        folder = self._folder.checkpoints
        place = checkpoint_places.fresh(folder, "step", step)
        save = Save(place, {"version": VERSION, **state}, ranks, step=step)
        if self.asynchronous:
            save.copy()

        def write(is_wanted: Callable[[], bool]) -> None:
            try:
                everyone = written_beside(save, ranks, is_wanted) if self.asynchronous else written_by_all(save, ranks)
                if ranks.rank == 0:
                    best_place = checkpoint_places.fresh(folder, "best", step) if best else None
                    save.finish(everyone, best=best_place)
                    self._remove_others(place, best_place)
            except OSError as error:
                if ranks.rank == 0:
                    remove_leftovers(folder)  # which would fill the disk for whatever is to be written of the failure
                said = f"{error.strerror}, so that a checkpoint was not written; the one before it is whole"
                raise OSError(error.errno, said, str(place)) from error

        self._begin(write, step=step)

    def _begin(self, work: Callable[[Callable[[], bool]], None], *, step: int) -> None:
        if self.asynchronous:
            self._flight = Flight(work, step=step)
        else:
            work(lambda: True)

    def settle(self) -> Landed | None:
        """Wait for a save that is still being written; None where there was none. Raises what it raised."""
        flight, self._flight = self._flight, None
        return flight.land() if flight is not None else None

    def give_up(self) -> None:
        """Training has failed: what is being written need not become whole."""
        if self._flight is not None:
            self._flight.give_up()

    def last(self, *, otherwise: str | None = None, ranks: Ranks | None = None) -> dict[str, Any] | None:
        """The checkpoint that the run goes on from: its own last one, else ``otherwise``, another run's; or None.

        ``ranks``: those that load it together, where they do.
        """
        if self._folder.last_checkpoint.exists():
            return complete(self._folder.last_checkpoint, ranks) | {"is_elsewhere": False}
        if otherwise is None:
            return None
        return complete(otherwise, ranks) | {"tables": {}, "is_elsewhere": True}  # its tables stay with it

    def take_best(self, source: str | Path, best: dict[str, Any] | None, *, copies: bool) -> bool:
        """Whether the best.pt beside another run's checkpoint is of the epoch that was ``best`` then.

        copies: it becomes this run's.
        """
        path = checkpoint_places.best(Path(source).parent)
        if best is None or not path.exists():
            return False
        state = load(path)
        progress = state.get("progress")
        key = "step" if "step" in best else "epoch"  # one within an epoch, or at its end
        if not isinstance(progress, dict) or progress.get(key) != best[key]:
            return False
        if copies:
            self._folder.checkpoints.mkdir(exist_ok=True)
            if path.is_dir():
                copy_folder(path, self._folder.checkpoints / path.name)
            else:
                self._save_best(state)
        return True

    def _save_best(self, state: dict[str, Any]) -> None:
        content = {part: state[part] for part in PARTS_OF_BEST} | {"model": evaluated(state)}
        with whole_file(self._folder.checkpoints / BEST) as file:
            torch.save(content, file)

    def _remove_others(self, last: Path, best: Path | None) -> None:
        """What the checkpoint ``last``, and ``best`` where there is a new one, make needless."""
        folder = self._folder.checkpoints
        kept = self._keep.staying(checkpoint_places.by_step(folder))
        files = folder.glob("step_*.pt") if self._keep.keeps_any else []
        lasts = [folder / LAST, *files, *checkpoint_places.folders(folder, "step")]
        bests = [folder / BEST, *checkpoint_places.folders(folder, "best")] if best else []
        for path in [*lasts, *bests]:
            if path not in (last, best, *kept):
                remove(path)


def evaluated(state: dict[str, Any]) -> dict[str, Tensor]:
    """The weights that evaluations are of: those that are trained, or their average."""
    weights, average = state["model"], state.get("average", {})
    if not average.get("is_evaluated"):
        return weights
    return {name: average["weights"].get(name, weight).to(weight.dtype) for name, weight in weights.items()}


def kept(value: Any) -> Any:
    """The same with copies of its tensors, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return each_of(value, kept)
    if isinstance(value, (list, tuple)):
        return type(value)([kept(each) for each in value])
    return value


def load(path: str | Path, ranks: Ranks | None = None, *, is_mapped: bool = False) -> dict[str, Any]:
    """A checkpoint's content on the CPU; plain data only, no code is run. Raises ConfigurationError.

    The tensors of a sharded one are read when they are used. ``ranks``: those that load it together, where they do.
    ``is_mapped``: the tensors of a single one stay in the file too.
    """
    if Path(path).is_dir():
        return _of_this_version(load_folder(Path(path), ranks), path)
    try:
        _refuse_bombs(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped or None)
        if isinstance(state, dict) and "version" in state:  # one of ours
            _compare_checksums(path)
    except FileNotFoundError:
        raise ConfigurationError(f"the checkpoint {path} does not exist.") from None
    except Exception as error:  # an unpickler meets damaged bytes with errors of every kind
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigurationError(f"the checkpoint {path} is damaged or no checkpoint: {reason}") from None
    if not isinstance(state, dict):
        raise ConfigurationError(f"the checkpoint {path} holds no weights by name.")
    return _of_this_version(state, path)


def load_folder(path: Path, ranks: Ranks | None) -> dict[str, Any]:
    """A sharded checkpoint's content. Raises ConfigurationError with the one before it that is whole."""
    try:
        return opened(path, ranks)
    except (ValueError, OSError) as error:
        reason = str(error)
    steps = [*checkpoint_places.by_step(path.parent).values()]
    for older in reversed(steps[: steps.index(path)] if path in steps else []):
        with suppress(ValueError, OSError):
            if older.is_dir() and opened(older):
                reason += f". The one before it is whole: set checkpoint.resume={older}, or remove this one to resume"
                break
    raise ConfigurationError(f"the checkpoint {path} is damaged or no checkpoint: {reason}.")


def _of_this_version(state: dict[str, Any], path: str | Path) -> dict[str, Any]:
    if state.get("version", VERSION) > VERSION:
        raise ConfigurationError(f"the checkpoint {path} was written by a newer version of manyheads. Update it.")
    return state


def complete(path: str | Path, ranks: Ranks | None = None) -> dict[str, Any]:
    """A checkpoint that has all that a run needs to go on, and its ``source``. Raises ConfigurationError."""
    state = load(path, ranks)
    if missing := set(PARTS) - set(state):
        raise ConfigurationError(
            f"cannot resume from the checkpoint {path}: it lacks {', '.join(sorted(missing))}. Set checkpoint.resume "
            "to a last.pt or step_*, which have them, or start anew with its weights by checkpoint.load."
        )
    return {**state, "source": str(path)}


def _refuse_bombs(path: str | Path) -> None:
    """Torch compresses nothing: what would take more memory than the file has bytes is not from it."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no plain file")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > os.stat(path).st_size:
                raise ValueError("it would unpack to more than its own size")


def _compare_checksums(path: str | Path) -> None:
    """Torch writes a checksum of each part, but does not compare it when it loads."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise ValueError(f"the checksum of {damaged} is wrong")


class Unfit(NamedTuple):
    """Names of weights that a model and a checkpoint do not share.

    missing: the model's, which the checkpoint lacks; unexpected: the checkpoint's, which the model lacks; shapes: of
    both, in different shapes.
    """

    missing: list[str]
    unexpected: list[str]
    shapes: list[str]

    def __str__(self) -> str:
        """All three in words, some names of each."""
        said = {"missing in it": self.missing, "left over": self.unexpected, "of another shape": self.shapes}
        return "; ".join(f"{words}: {_some(names)}" for words, names in said.items() if names)


def load_model(
    model: torch.nn.Module,
    weights: dict[str, Tensor],
    source: str | Path,
    *,
    strict: bool = True,
    advice: str = "Set model= to the one it was trained with.",
) -> Unfit:
    """Load the weights into the model; returns what did not fit.

    strict: nothing may be left. advice: the end of the error's sentence. Raises ConfigurationError when the weights are
    another model's: not all of them fit, or without ``strict`` none.
    """
    own = model.state_dict()
    if not (isinstance(weights, dict) and all(isinstance(weight, (Tensor, Lazy)) for weight in weights.values())):
        raise ConfigurationError(f"the checkpoint {source} holds no weights by name.")
    unfit = Unfit(
        missing=[name for name in own if name not in weights],
        unexpected=[name for name in weights if name not in own],
        shapes=[name for name in own if name in weights and weights[name].shape != own[name].shape],
    )
    count = sum(map(len, unfit))
    if count and strict:
        raise ConfigurationError(
            f"the checkpoint {source} is of another model: {count} of its names or shapes don't fit ({unfit}). {advice}"
        )
    if own and len(own) == len(unfit.missing) + len(unfit.shapes):
        raise ConfigurationError(f"the checkpoint {source} is of another model: none of its weights fit. {advice}")
    fitting = copy.copy(weights)  # with the versions that some modules' loading asks for
    for name in (*unfit.unexpected, *unfit.shapes):
        del fitting[name]
    for part in _parts(fitting):
        model.load_state_dict(part, strict=strict and len(part) == len(fitting))
    return unfit


def _parts(weights: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """The weights, those that are still on the disk a few at a time."""
    if not any(isinstance(weight, Lazy) for weight in weights.values()):
        yield weights
        return
    part = copy.copy(weights)
    part.clear()
    for name, weight in weights.items():
        part[name] = real(weight)
        if sum(tensor.nbytes for tensor in part.values()) >= AT_ONCE:
            yield part
            part.clear()
    yield part


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def load_optimizer(optimizer: Optimizer, state: dict[str, Any], source: str | Path) -> None:
    """Load the optimizer's state. Raises ConfigurationError when it is that of another kind."""
    saved, own = (KINDS & set().union(*groups) for groups in (state["param_groups"], optimizer.param_groups))
    if saved != own:
        raise ConfigurationError(
            f"the checkpoint {source} is of another optimizer, one with {', '.join(sorted(saved)) or 'other settings'} "
            f"where this one has {', '.join(sorted(own)) or 'none'}. Set optimizer= to the one it was trained with."
        )
    sizes, own_sizes = (
        [len(group["params"]) for group in groups] for groups in (state["param_groups"], optimizer.param_groups)
    )
    if sizes != own_sizes:
        was, has = (" + ".join(map(str, each)) for each in (sizes, own_sizes))
        raise ConfigurationError(
            f"the checkpoint {source} has {was} parameters to train in its groups, where this run has {has}. Set "
            "parameters.* to what it was trained with, or begin with its weights alone by checkpoint.load."
        )
    optimizer.load_state_dict({**state, "param_groups": _with_own_settings(optimizer, state["param_groups"])})


def _with_own_settings(optimizer: Optimizer, saved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Saved groups of parameters with this run's settings, such as its weight decay, but for what training changes."""
    names = set(getattr(optimizer, "defaults", {})) - {"lr"}  # which the schedule sets
    return [
        {name: own[name] if name in names & own.keys() else value for name, value in group.items()}
        for group, own in zip(saved, optimizer.param_groups, strict=True)
    ]


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """Digest over name, dtype, shape and bytes in name order: equal if and only if two runs' weights are."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def largest_entry(tensor: Tensor) -> float:
    """The largest absolute value; inf or NaN where one is that, 0 of an empty tensor."""
    return float(tensor.to(torch.float64).abs().max()) if tensor.numel() else 0.0
