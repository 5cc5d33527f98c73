"""Answers to questions about runs, by measuring: a wing each, none of which imports another, over ``measure/``."""
