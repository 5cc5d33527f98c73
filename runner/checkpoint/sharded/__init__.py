"""Sharded checkpoints: folders to which each rank writes its part."""
