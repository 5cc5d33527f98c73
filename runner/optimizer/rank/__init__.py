"""The part of optimizer that runs in a rank, and imports torch."""
