"""What objects with a state keep of it, as in torch's state_dicts."""

from typing import Any

StateDict = dict[str, Any]  # tensors and plain values by name
