"""What ranks measure; imports torch."""
