"""Numbers from added-up statistics, a task's own and those that ``metrics`` of the run config adds."""
