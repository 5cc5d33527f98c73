"""``manyheads parity``: the same steps on every strategy, compared with one process's, and why they differ."""
