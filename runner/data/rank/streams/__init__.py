"""Samples that come one after another."""
