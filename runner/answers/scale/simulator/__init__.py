"""Simulates an update on many devices: step and network are described as data, and replayed."""
