"""The origin of a run: its command, code, versions, machine and data."""
