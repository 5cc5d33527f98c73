"""Reads finished runs and sweeps, for comparing, listing, repeating and claiming: the core record, without torch."""
