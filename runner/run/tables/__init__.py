"""The tables of a run, CSV files to which rank 0 appends rows: steps.csv, epochs.csv and others."""
