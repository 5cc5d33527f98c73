"""What ranks do for a judgement."""
