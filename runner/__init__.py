"""One experiment on any backend: the ranks' side, and the torch-free parts that the parent shares."""
