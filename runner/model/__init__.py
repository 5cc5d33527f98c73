"""What is trained: one file for each kind of model in conf/model."""
