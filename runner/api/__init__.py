"""What ``import manyheads`` offers in Python. The package's own ``__init__`` names it, and loads it late."""
