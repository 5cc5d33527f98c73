"""``manyheads record``: whether and how fast a recipe reaches a target, over many runs."""
