"""What is trained on: one file for each kind of data in conf/data, and the way from samples to batches."""
