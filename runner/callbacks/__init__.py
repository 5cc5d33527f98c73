"""What a user hooks into a run: ``callbacks`` of the run config."""
