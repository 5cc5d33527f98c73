"""The part of parallel that runs in a rank, and imports torch."""
