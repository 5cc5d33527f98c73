"""The part of logger that runs in a rank, and imports torch."""
