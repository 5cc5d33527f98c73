"""The part of checkpoint.sharded that runs in a rank, and imports torch."""
