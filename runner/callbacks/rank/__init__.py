"""The part of callbacks that runs in a rank, and imports torch."""
