"""A GPU that computes no values, for machines without one: shows where an update would wait for the device."""
