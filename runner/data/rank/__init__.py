"""The part of data that runs in a rank, and imports torch."""
