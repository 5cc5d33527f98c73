"""The part of metrics that runs in a rank, and imports torch."""
