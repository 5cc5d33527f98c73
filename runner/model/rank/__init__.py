"""The part of model that runs in a rank, and imports torch."""
