"""A package that pip installs: a model, a strategy, a launcher, a logger and an experiment for manyheads."""
