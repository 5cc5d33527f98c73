"""Several machines: an agent on each, and what the parent knows of it."""
