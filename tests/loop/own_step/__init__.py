"""A step of the task's own."""
