"""What a batch means: its inputs, its loss and what is measured of it; one file for each option of ``task``."""
