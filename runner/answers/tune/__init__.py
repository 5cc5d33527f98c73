"""``manyheads tune``: the fastest way to compute a run's updates on this machine."""
