"""The part of checkpoint that runs in a rank, and imports torch."""
