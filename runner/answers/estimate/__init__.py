"""Estimates the memory and communication of each rank of a run, without its devices or its other ranks."""
