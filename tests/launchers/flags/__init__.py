"""The tests of one room."""
