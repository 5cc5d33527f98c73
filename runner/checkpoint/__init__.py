"""Checkpoint files: what is in them, when they are written, and which are kept."""
