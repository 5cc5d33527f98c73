"""Publishing runs to trackers: a process that reads a run folder, during the run or long after it."""
