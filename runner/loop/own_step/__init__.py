"""A step of the task's own, in place of "outputs, then loss"."""
