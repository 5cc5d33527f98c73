"""Runs the cells of docs/tour.ipynb. ``python -m tests.docs.notebook`` stores what they print."""

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

TOUR = ROOT / "docs" / "tour.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in the working directory."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((one for one in notebook["cells"] if one["cell_type"] == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _run("".join(cell["source"]), namespace)
        cell["execution_count"] = count
        cell["outputs"] = []
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})
        if value is not None:
            data = {"text/plain": repr(value).splitlines(keepends=True)}
            result = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data}
            cell["outputs"].append(result)
    return notebook


def reference() -> str:
    """The notebook as a page of the site: its cells and what they printed."""
    parts = []
    for cell in json.loads(TOUR.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            lines = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
            parts.append("```text\n{}\n```".format("".join(lines).strip("\n")))
    parts[0] += "\n\nThis page is a notebook: [download it](tour.ipynb)."
    return "\n\n".join(parts) + "\n"


def _run(source: str, namespace: dict[str, Any]) -> Any:
    """Execute a cell; the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace) if last else None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        done = executed(json.loads(TOUR.read_text()))
    Path(TOUR).write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n")
