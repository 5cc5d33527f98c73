"""What the project costs over hand-written code, measured side by side in one run. `make bench`."""
