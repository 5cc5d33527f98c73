"""The part of serve that runs in a rank, and imports torch."""
