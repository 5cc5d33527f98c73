"""A record: many runs of one recipe that reach a target, with the evidence that others can check."""
