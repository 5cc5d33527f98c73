"""The audit's own rank, which reads the samples of all splits."""
