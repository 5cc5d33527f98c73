"""``make compat``: the core of the suite on the lowest and the newest torch, and on each Python that is claimed."""
