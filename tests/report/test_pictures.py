"""The page shows what each row's run has drawn last, as far as there is room."""

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image

from manyheads.runner.report import pictures as module
from manyheads.runner.report.comparison_page import as_page
from manyheads.runner.run.pictures import with_step
from tests.report.sweep import Sweep
from tests.report.test_comparison_page import EVIL


def draw(folder: Path, name: str, shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), shade).save(file, format="png")
    (folder / "pictures").mkdir(exist_ok=True)
    (folder / "pictures" / f"{name}.png").write_bytes(png := with_step(file.getvalue(), 1200))
    return png


@pytest.fixture
def drawn(sweep: Sweep) -> list[bytes]:
    """The pictures of two jobs; a third one has other files."""
    both = [draw(sweep.job(f"+model.note=a{EVIL}{shade}"), "samples", shade) for shade in (0, 9)]
    folder = sweep.job("+model.note=b")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "text.png").write_text("<script>alert(1)</script>")
    (folder / "pictures" / "link.png").symlink_to(sweep.folder / "0" / "pictures" / "samples.png")
    return both


def test_pictures_are_embedded_with_their_job_and_step(sweep, drawn):
    page = as_page(sweep.compared(), sweep.folder)
    sources = [base64.b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]
    assert sorted(sources) == sorted(drawn)
    assert page.count(", after 1,200 updates</figcaption>") == 2
    assert "<script>alert" not in page
    assert "left out" not in page


def test_what_is_too_large_is_counted(sweep, monkeypatch):
    folders = [sweep.job(f"optimizer.lr=0.{number}") for number in (1, 2)]
    sizes = [len(draw(folder, "samples", 7)) for folder in folders]
    monkeypatch.setattr(module, "MOST_BYTES", sizes[0] + 5)
    page = as_page(sweep.compared(), sweep.folder)
    assert page.count("data:image/png") == 1
    assert "1 picture is left out, for the size of this page" in page


def test_a_page_without_pictures_has_no_section(sweep):
    sweep.job("parallel=single")
    assert 'id="pictures"' not in as_page(sweep.compared(), sweep.folder)
