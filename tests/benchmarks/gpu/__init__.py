"""Training on one GPU beside the tutorial's loop and the GPU's own limits. `python -m tests.benchmarks.gpu`."""
