"""Faults in the project's code that the tests must find, at least one for each promise of docs/promises.md."""
