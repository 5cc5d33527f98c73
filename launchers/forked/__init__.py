"""What only the warm process and those that are forked from it import: torch, first of all."""
