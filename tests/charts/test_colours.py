"""Colours of pages and pictures: text can be read, and colour-blind readers tell lines and bars apart."""

import re

import pytest

from manyheads.runner.charts.colours import OTHERS
from manyheads.runner.config.lookup import options, read_option
from manyheads.runner.option.declared import declared
from tests.charts.sight import alike, contrast
from tests.conftest import ROOT

STYLE = (ROOT / "runner" / "charts" / "page.css").read_text()
BACKGROUNDS, TEXTS = ("page", "head", "hover", "pale"), ("ink", "soft", "link", "finding")


def strategies() -> list[str]:
    found = [declared("parallel", read_option("parallel", name)).color for name in options("parallel")]
    assert None not in found
    return [colour for colour in found if colour]


@pytest.mark.parametrize("colours", [strategies(), OTHERS], ids=["strategies", "others"])
def test_colours_of_one_picture_are_told_apart_by_all_readers(colours):
    assert len(colours) >= 6
    assert [*alike(colours)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_every_background(scheme):
    rule = STYLE.split("@media (prefers-color-scheme: dark)")[scheme == "dark"].partition("}")[0]
    named = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", rule))
    assert min(contrast(named[text], named[ground]) for text in TEXTS for ground in BACKGROUNDS) >= 4.5


def test_what_is_the_same_to_some_readers_is_found():
    assert ("#d55e00", "#8c6d1f", "protanopia") in [*alike(["#d55e00", "#8c6d1f"])]
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
