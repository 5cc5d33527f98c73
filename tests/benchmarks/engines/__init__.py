"""What many machines cost the parent of a run, and how soon it notices the loss of one."""
