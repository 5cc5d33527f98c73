"""Repeat a finished run from what it saved, and say whether it is the same."""
