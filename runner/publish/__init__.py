"""Runs at trackers: a process that reads a run folder, beside the run or long after it."""
