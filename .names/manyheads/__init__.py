"""One PyTorch experiment on any parallel backend: composed by Hydra, run by one loop, compared fairly."""

__version__ = "0.1.0"
