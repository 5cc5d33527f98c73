"""The notebook does what it shows."""

import ast
import json
from typing import Any

import pytest

from tests.docs.notebook import TOUR, executed


@pytest.mark.tail
@pytest.mark.processes
def test_its_cells_run_and_print_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored, done = json.loads(TOUR.read_text()), executed(json.loads(TOUR.read_text()))
    (status, accuracy, lr), label = values(done)
    (shown_status, shown_accuracy, shown_lr), shown_label = values(stored)
    assert (status, lr, label) == (shown_status, shown_lr, shown_label)
    assert accuracy == pytest.approx(shown_accuracy, abs=2)  # another processor rounds otherwise


def values(notebook: dict[str, Any]) -> list[Any]:
    """What its expressions give."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    results = [output for output in outputs if output["output_type"] == "execute_result"]
    return [ast.literal_eval("".join(result["data"]["text/plain"])) for result in results]
