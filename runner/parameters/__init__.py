"""Chooses which of a model's parameters are trained and with which settings: the run config's ``parameters``."""
