"""Loads weights from a file: all of a checkpoint's, or all but the classifier of a pretrained model."""

from collections import OrderedDict
from pathlib import Path

from torch import Tensor, nn

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError


def load_file(model: nn.Module, path: str) -> None:
    """Load weights from a file that contains a state_dict, or one under the key "model" or "state_dict"."""
    content = load(Path(path).expanduser().resolve())
    state = content.get("model") or content.get("state_dict") or content
    for prefix in ("module.", "_orig_mod."):  # of models saved within DataParallel, DDP or torch.compile
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    load_weights(model, state, path)


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load the weights that fit; a last layer for other classes stays random. ``source``: for the error.

    Raises ConfigurationError if more than the last layer does not fit.
    """
    own = model.state_dict()
    metadata = getattr(state, "_metadata", None)  # version numbers, which some modules need to load
    state = {key: value for key, value in state.items() if not key.lower().startswith("aux")}
    unfit = {key for key in own if key not in state or state[key].shape != own[key].shape}
    last = list(own)[-1].rpartition(".")[0] if own else ""
    wrong = {key for key in unfit if key.rpartition(".")[0] != last} | (set(state) - set(own))
    if wrong:
        raise ConfigurationError.at(
            "model.pretrained",
            source,
            f" holds the weights of another model: {', '.join(sorted(wrong)[:4])} don't fit.",
        )
    fitting = OrderedDict((key, value) for key, value in state.items() if key not in unfit)
    if metadata is not None:
        fitting._metadata = metadata  # type: ignore[attr-defined]
    model.load_state_dict(fitting, strict=False)
