"""One matrix of surroundings: homes, temporary folders, working directories, streams and names, under every launcher.

``python -m tests.surroundings`` runs all of it; `make test-ci` runs a few of its cells.
"""
