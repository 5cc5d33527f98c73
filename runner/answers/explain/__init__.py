"""``manyheads explain``: what limits the speed of a run."""
