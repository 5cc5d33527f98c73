"""Self-supervised learning: the table of docs/published.md, and a whole run of the guide's files that repeats it."""

import re
import sys

import pytest

from tests.conftest import ROOT, execute
from tests.docs.console import Console, commands
from tests.published.figures import SELF_SUPERVISED, Measured
from tests.published.page import table

HOURS = 3600
GUIDE = ROOT / "docs" / "self-supervised.md"
ROWS = {row["accuracy"]: row for row in table("Self-supervised learning")}


def measured(row: dict[str, str]) -> Measured:
    mean, half = map(float, row["here"].split(" ± "))
    return Measured(mean, half, int(row["seeds"]))


@pytest.mark.parametrize("probe", SELF_SUPERVISED)
def test_the_page_has_each_published_value_and_what_follows_from_ours(probe):
    value, verdict = ROWS[probe]["notebook"].split()
    assert float(value) == SELF_SUPERVISED[probe]
    assert verdict.strip("*") == measured(ROWS[probe]).verdict(float(value))


@pytest.mark.tail
@pytest.mark.processes
@pytest.mark.timeout(HOURS)
def test_a_whole_run_of_the_guides_files_reaches_what_the_page_says(tmp_path):
    text = GUIDE.read_text()
    for block in re.findall(r"^```python\n# (\S+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        (tmp_path / block[0]).write_text(block[1])
    [(train, _), (probe, _)] = commands("".join(re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)))
    console = Console(tmp_path)
    words = train.replace("trainer.epochs=3", "trainer.epochs=200").split()
    execute(sys.executable, "-m", "manyheads", *words[1:], cwd=tmp_path, timeout=HOURS)
    for line in console.type(probe).splitlines():
        name, value = line.split(": ")
        row = measured(ROWS[name])
        assert abs(float(value.removesuffix(" %")) - row.mean) < max(4.0, row.half)
