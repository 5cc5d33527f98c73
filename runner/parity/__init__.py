"""``python -m runner parity``: the same steps on every backend, held against one process's, and why they differ."""
