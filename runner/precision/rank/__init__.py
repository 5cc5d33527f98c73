"""The part of precision that runs in a rank, and imports torch."""
