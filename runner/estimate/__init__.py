"""The memory and traffic of a run, by rank, found without its devices, its memory or its other ranks."""
