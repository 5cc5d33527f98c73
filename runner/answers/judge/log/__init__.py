"""``manyheads judge --log``: how many kept changes of a search noise alone explains."""
