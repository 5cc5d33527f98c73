"""Runs on several machines: an agent on each one, and the parent that directs them."""
