"""``manyheads scale``: a run on more devices, predicted from a measurement of one."""
