"""Where a run came from: its command, code, versions, machine and data."""
