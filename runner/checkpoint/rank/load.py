"""Reading checkpoints, which somebody else may have written: no code in them is run."""

import hashlib
import os
import re
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from manyheads.runner.checkpoint.rank.bombs import refuse_bombs, refuse_repetition
from manyheads.runner.checkpoint.rank.dtypes import as_real
from manyheads.runner.checkpoint.rank.extra_state import packed
from manyheads.runner.checkpoint.rank.lazy import RankGroup, folder_format, refuse_tensor_bombs
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option import locate
from manyheads.runner.run import checkpoint_places
from manyheads.runner.run.checkpoint_places import Damaged, StateDict
from manyheads.runner.run.data_files import no_link

VERSION = 1
_CODE = re.compile(r"GLOBAL ([\w.]+)")  # in an error of torch's unpickler
PARTS = ("model", "optimizer", "scheduler", "precision", "progress", "rng", "tables")


def load(path: str | Path, ranks: RankGroup | None = None, *, is_mapped: bool = False) -> StateDict:
    """A checkpoint's content on the CPU; plain data only, no code is run. Raises ConfigurationError.

    The tensors of a sharded checkpoint are read when they are used. ``ranks``: the ranks that load it together, if
    several do. ``is_mapped``: the tensors of a single file stay in it too, mapped into memory.
    """
    if Path(path).is_dir():
        return _of_this_version(load_folder(Path(path), ranks), path)
    try:
        with open(path, "rb", opener=no_link) as file:
            refuse_bombs(file)
            source = f"/dev/fd/{file.fileno()}" if is_mapped else file  # mapping takes a path
            state = torch.load(source, map_location="cpu", weights_only=True, mmap=is_mapped or None)
            size = os.fstat(file.fileno()).st_size
            refuse_repetition(state, size)
            refuse_tensor_bombs(state, size)
            if isinstance(state, dict) and "version" in state:  # one of ours
                _compare_checksums(file)
    except FileNotFoundError:
        raise ConfigurationError(f"the checkpoint {path} does not exist.") from None
    except Exception as error:  # damaged bytes make an unpickler raise errors of any type
        raise refusal(path, error) from None
    if not isinstance(state, dict):
        raise ConfigurationError(f"the checkpoint {path} holds no named weights.")
    return _of_this_version(state, path)


def load_folder(path: Path, ranks: RankGroup | None) -> StateDict:
    """A sharded checkpoint's content. Raises ConfigurationError, which names the newest earlier one that is intact."""
    opened = folder_format().opened
    try:
        return opened(path, ranks)
    except (Damaged, OSError) as error:
        refused = refusal(path, error)
    steps = [*checkpoint_places.by_step(path.parent).values()]
    for older in reversed(steps[: steps.index(path)] if path in steps else []):
        with suppress(Damaged, OSError):
            if older.is_dir() and opened(older):
                intact = f"The previous one is intact: set checkpoint.resume={older}, or remove this one to resume."
                raise ConfigurationError(f"{refused} {intact}")
    raise refused


def refusal(path: str | Path, error: Exception) -> ConfigurationError:
    """The error for a checkpoint whose reading ended with ``error``."""
    if isinstance(error, (Damaged, ConfigurationError)):
        reason = str(error)
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
    elif code := _CODE.search(str(error)):
        reason = f"it names {code[1]}, and only tensors and plain values are read"
    elif "can't allocate memory" in str(error):
        reason = "there is not enough memory for it"
    else:
        reason = "torch cannot read it"
    return ConfigurationError(f"the checkpoint {path} is damaged or not a checkpoint: {reason.rstrip('.')}.")


def _of_this_version(state: StateDict, path: str | Path) -> StateDict:
    version = state.get("version", VERSION)
    if not isinstance(version, int):
        raise ConfigurationError(f"the checkpoint {path} is damaged or not a checkpoint: its version is {version!r}.")
    if not isinstance(state.get("model", {}), dict):
        raise ConfigurationError(f"the checkpoint {path} holds no named weights.")
    if version > VERSION:
        raise ConfigurationError(f"the checkpoint {path} was written by a newer version of manyheads. Update it.")
    return state


def complete(path: str | Path, ranks: RankGroup | None = None) -> StateDict:
    """A checkpoint with everything that a run needs to resume, and its ``source``. Raises ConfigurationError."""
    is_put_off = ranks is not None and ranks.shares_model and Path(path).is_file()
    state = load(path, ranks, is_mapped=is_put_off)
    if is_put_off:
        state = locate.load("manyheads.runner.checkpoint.rank.put_off.put_off")(state)
    if missing := set(PARTS) - set(state):
        raise ConfigurationError(
            f"cannot resume from the checkpoint {path}: it lacks {', '.join(sorted(missing))}. Set "
            "checkpoint.resume to a last.pt or a step_*, which are complete, or start over from its weights with "
            "checkpoint.load."
        )
    return {**state, "source": str(path)}


def _compare_checksums(file: IO[bytes]) -> None:
    """Torch writes a checksum of each part, but does not compare it when it loads."""
    with zipfile.ZipFile(file) as archive:
        if damaged := archive.testzip():
            raise Damaged(f"the checksum of {damaged} is wrong")


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """Digest over name, dtype, shape and bytes in name order: equal if and only if the weights are."""
    return sha256_of(sorted(packed(weights).items()))


def sha256_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The digest of ``weights_sha256`` over tensors with their names, which come in name order."""
    digest = hashlib.sha256()
    for name, weight in tensors:
        tensor = weight.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def largest_entry(tensor: Tensor) -> float:
    """The largest absolute value, of a real or imaginary part; inf or NaN if the tensor has one, 0 if it is empty."""
    return float(as_real(tensor).to(torch.float64).abs().max()) if tensor.numel() else 0.0
