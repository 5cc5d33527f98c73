"""The part of task that runs in a rank, and imports torch."""
