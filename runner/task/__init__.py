"""What a batch means: its inputs, loss and metrics; one file for each option of ``task``."""
