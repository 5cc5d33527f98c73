"""Repeat a finished run from what it saved, and say whether it is the same."""

from manyheads.runner.reproduce.command import reproduce

__all__ = ["reproduce"]
