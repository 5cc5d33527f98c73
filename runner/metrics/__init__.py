"""Numbers computed from summed statistics: a task's own, and those added by ``metrics`` of the run config."""
