"""What ranks measure for an explanation."""
