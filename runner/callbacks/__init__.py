"""Hooks for user code during a run: ``callbacks`` of the run config."""
