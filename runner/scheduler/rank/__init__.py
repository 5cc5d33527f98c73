"""The part of scheduler that runs in a rank, and imports torch."""
