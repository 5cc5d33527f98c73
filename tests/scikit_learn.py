"""scikit-learn's figures, against which ours are tested; importing it takes seconds, which only such tests spend."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def reference(name: str) -> Callable[..., Any]:
    """A function of sklearn.metrics."""
    return getattr(import_module("sklearn.metrics"), name)
