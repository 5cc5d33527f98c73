"""What ``import manyheads`` offers in Python. The package's own ``__init__`` imports these names lazily."""
