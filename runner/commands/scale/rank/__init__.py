"""What a rank does for a prediction."""
