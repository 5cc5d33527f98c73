"""Optimizers, and which of a model's parameters they train with which settings."""
