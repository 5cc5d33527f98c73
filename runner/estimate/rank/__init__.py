"""The part of estimate that runs in a rank, and imports torch."""
