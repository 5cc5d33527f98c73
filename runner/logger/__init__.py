"""The destinations of a run's numbers: its tables, the terminal, TensorBoard, trackers."""
