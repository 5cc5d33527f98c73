"""In the place of the compiled kernels, whose presence is looked for."""
