"""Configs from others: which code one may name, and whose it must be otherwise."""
