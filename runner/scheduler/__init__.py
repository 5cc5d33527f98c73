"""Learning rates as a function of the update's number."""
