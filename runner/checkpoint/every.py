"""checkpoint.every: a number of updates, or of epochs as text."""

import re

EVERY = re.compile(r"(\d+)epochs?")
