"""``manyheads judge``: is a change better, or was it noise?"""
