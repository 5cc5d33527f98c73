"""A package that pip installs: a strategy, a logger and an experiment for manyheads."""
