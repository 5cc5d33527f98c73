"""What a rank does for an audit."""
