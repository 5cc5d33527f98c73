"""Sweeps: many runs, planned together, each started like a single run."""
