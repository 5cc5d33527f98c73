"""tuning.html: what it says, and how it looks in a real browser."""

import re

import pytest

from tests.answers.tune.test_tune import FASTER, halved, played, tuned
from tests.browser import opened, seen_as

pytestmark = pytest.mark.ci

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of a tuning in which one configuration is faster, and another one fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        played(patch, seconds=halved, fails=lambda purpose, arm: EVIL if "accumulation=8" in arm else None)
        return tuned().page


def test_it_has_every_configuration_and_every_round(page):
    text = page.read_text()
    lines = re.findall(r"<tr>(<td>.*?)</tr>", text.partition('id="configurations"')[2].partition("</table>")[0])
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in lines]
    by_name = {each[0]: each[1:] for each in cells}
    assert float(by_name[FASTER][1]) == pytest.approx(2, abs=0.05)
    assert int(by_name[FASTER][2]) >= 10
    assert by_name["your configuration"][1] == ""
    assert '<p id="headline">2.0' in text
    assert f"<p>same numerics: {FASTER}</p>" in text


def test_what_was_not_possible_is_listed_and_escaped(page):
    text = page.read_text()
    assert EVIL not in text
    assert "failed: &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search(r"https?://|<link[^>]+stylesheet|<script[^>]+src|@import|url\(", text)


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_it_draws_its_rounds_in_any_width_light_or_dark(browser, page):
    measure = """const parts = (each) => [...document.querySelectorAll(each)];
        return {page: document.documentElement.scrollWidth,
          fits: parts(".frame").every((each) => each.querySelector("svg").clientWidth === each.clientWidth),
          points: parts("#rounds .series circle").length}"""
    with opened(browser, page) as shown:
        for width, scheme in ((1280, "light"), (400, "dark")):
            with seen_as(shown, width=width, scheme=scheme, measure=measure) as found:
                assert found["page"] <= width
                assert found["fits"]
                assert found["points"] >= 10
