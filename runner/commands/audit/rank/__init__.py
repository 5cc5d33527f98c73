"""What the rank of an audit does."""
