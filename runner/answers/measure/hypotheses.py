"""The tests of a judgement by name: each one's null hypothesis, and what they call the scale. Needs no numpy."""

from collections.abc import Sequence
from statistics import median

CLIP = 5.0  # in units of the scale: beyond it, differences are cut off
PAIRED_CLIP = 3.0  # the least, where it is the range of the rounds before
NULLS = {  # in words
    "symmetric": "if the change has no effect at all, each round's difference is as likely as its opposite, since a "
    "coin decides which arm runs first",
    "mean": f"if the change has no effect on the mean, differences (those beyond {CLIP:g} times the noise floor are "
    "cut off there) are 0 on average, however their spread differs",
    "paired": "if the change has no effect on the mean, differences between runs with the same seed (those beyond the "
    f"range of the rounds before, or {PAIRED_CLIP:g} times the noise floor if that is more, are cut off there) are 0 "
    "on average",
}


def spread(differences: Sequence[float]) -> float:
    """The scale of differences between equal arms: a standard deviation, estimated from their median absolute value."""
    return 1.4826 * float(median(map(abs, differences)))
