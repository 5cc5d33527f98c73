"""judgement.html: what it says, and how it looks in a real browser."""

import re

import pytest

from manyheads.runner.answers.judge.answer import verdict_line
from manyheads.runner.answers.judge.claims import REFUSED, Claims, claims_of
from manyheads.runner.answers.judge.judgement_page import as_page
from tests.answers.judge.test_claims import ON, question, rows
from tests.browser import opened, seen_as

EVIL = "</script><script>alert(1)</script><!--\"'&"
CHANGES = [(9, 0.9)] * 5 + [None] + [(8, 0.5)] * 4
DIFFERING = {"base": {"optimizer": {"lr": 0.1}}, "changed": {"optimizer": {"lr": EVIL}}, "files": [EVIL]}


def page_of(changes=CHANGES, faults=(), **asked):
    known = question(**DIFFERING, **asked)
    measured = rows(changes)
    return as_page(known, measured, claims_of(known, measured), faults)


def runs(number):
    """Links to two runs, whose folders have no names in these rows."""
    return ", ".join(f'<a href="/">{each}</a>' for each in (number, number + 1))


def test_it_holds_the_verdict_every_round_and_the_count_of_the_ledger():
    known, measured = question(on="val_acc1"), rows(CHANGES)
    claims = claims_of(known, measured)
    page = as_page(known, measured, claims, ())
    assert f'<p id="headline">{verdict_line(known, claims)}</p>' in page
    lines = re.findall(r"<tr>(<td>.*?)</tr>", page.partition('id="rounds"')[2].partition("</table>")[0])
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in lines]
    assert cells[0] == ["base against base 1", "base", "90", "91", "1", runs(0)]
    assert cells[5] == ["1", "base", "90", "99", "9", runs(10)]
    assert cells[10] == ["6", "base", "90", "failed", f"{-5 * claims.effects[0].scale:.3g}", runs(20)]
    assert len(cells) == 5 + 10
    assert "The ledger counts 30 runs: 10 of base against base, 20 of rounds. Of them, 29 completed, 1 failed." in page
    assert "All claims follow from the 30 runs." in page
    assert "In 1 round only the change failed, and lost the round." in page


def test_what_was_found_wrong_takes_the_place_of_that_it_follows():
    page = page_of(faults=["run 3 is missing"])
    assert "does not hold: run 3 is missing" in page
    assert "All claims follow" not in page


def test_what_is_refused_or_not_measured_has_no_charts():
    for claims in (Claims(REFUSED, ("the change evaluates 64 samples",)), Claims("undecided")):
        page = as_page(question(**DIFFERING), [], claims, ())
        assert "<figure" not in page
        assert verdict_line(question(), claims) in page


def test_what_users_wrote_is_escaped_and_the_page_needs_nothing_else():
    page = page_of(change=EVIL)
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<!--" not in page
    assert not re.search(r"https?://|<link[^>]+stylesheet|<script[^>]+src|@import|url\(", page)


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_it_draws_its_charts_in_any_width_light_or_dark(browser, tmp_path):
    file = tmp_path / "judgement.html"
    file.write_text(page_of())
    measure = """const parts = (each) => [...document.querySelectorAll(each)];
        return {page: document.documentElement.scrollWidth,
          fits: parts(".frame").every((each) => each.querySelector("svg").clientWidth === each.clientWidth),
          points: parts(".frame").map((each) => each.querySelectorAll(".series circle").length),
          names: parts("#rounds_0 .legend button").map((each) => each.textContent)}"""
    with opened(browser, file) as page:
        for width, scheme in ((1280, "light"), (400, "dark")):
            with seen_as(page, width=width, scheme=scheme, measure=measure) as found:
                assert found["page"] <= width
                assert found["fits"]
                assert len(found["points"]) == 2 * len(ON.split(","))
                assert found["points"][1] == found["points"][3] == len(CHANGES)
                assert found["names"][0] == "base first"
