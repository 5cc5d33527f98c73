"""What ranks do for an explanation."""
