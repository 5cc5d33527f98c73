"""Weights from a file: the whole of a checkpoint, or all but the classifier of a pretrained model."""

from collections import OrderedDict
from pathlib import Path

from torch import Tensor, nn

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.run.errors import ConfigurationError


def load_file(model: nn.Module, path: str) -> None:
    """Load weights from a file that holds them bare, or as "model" or "state_dict"."""
    content = load(Path(path).expanduser())
    state = content.get("model", content.get("state_dict", content))
    for prefix in ("module.", "_orig_mod."):  # of DataParallel and DDP, and of torch.compile, when saved as wrapped
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    load_weights(model, state, path)


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load what fits; a last layer for other classes stays new. ``source``: for the error.

    Raises ConfigurationError when more than the last layer does not fit.
    """
    own = model.state_dict()
    metadata = getattr(state, "_metadata", None)  # versions, which some modules' loading asks for
    state = {key: value for key, value in state.items() if not key.lower().startswith("aux")}
    unfit = {key for key in own if key not in state or state[key].shape != own[key].shape}
    last = list(own)[-1].rpartition(".")[0] if own else ""
    wrong = {key for key in unfit if key.rpartition(".")[0] != last} | (set(state) - set(own))
    if wrong:
        raise ConfigurationError(
            f"model.pretrained={source} holds the weights of another model: {', '.join(sorted(wrong)[:4])} don't fit."
        )
    fitting = OrderedDict((key, value) for key, value in state.items() if key not in unfit)
    if metadata is not None:
        fitting._metadata = metadata  # type: ignore[attr-defined]
    model.load_state_dict(fitting, strict=False)
