"""Where a run's numbers go: its tables, the terminal, TensorBoard, trackers."""
