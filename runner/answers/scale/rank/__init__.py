"""What ranks measure for a prediction."""
