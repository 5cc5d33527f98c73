"""Slurm: runs as jobs in its queue, and runs inside an allocation."""
