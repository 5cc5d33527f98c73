"""This machine and this process, without torch."""
