"""``manyheads audit``: whether each epoch of a run took each sample exactly once."""
