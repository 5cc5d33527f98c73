"""Declarations of the options of a run config, found without torch."""
