"""A pipe, or a link to the user's file, named as the session file that ONNX Runtime's telemetry keeps in TMPDIR."""

import os
import sys

import pytest

from tests.conftest import execute

NEEDS_STRANGER = True
CHECK = """
import sys
import onnx.helper as h, torch
from manyheads.runner.serve.rank.export_formats import WRITERS
value = lambda name: h.make_tensor_value_info(name, 1, [1])
graph = h.make_graph([h.make_node("Identity", ["images"], ["outputs"])], "g", [value("images")], [value("outputs")])
import onnx
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), sys.argv[1])
print(WRITERS["onnx"].outputs(sys.argv[1], None, torch.ones(1)))
"""


def attack(scene):
    pytest.importorskip("onnxruntime")
    shared, mine = scene.new("shared", mode=0o1777), scene.folder / "mine"
    scene.patch.setenv("TMPDIR", str(shared))
    mine.write_text("precious")
    for plant in (f"ln -s {mine}", "mkfifo -m 666"):
        scene.stranger(f"rm -f {shared}/.ses; {plant} {shared}/.ses")
        assert (shared / ".ses").lstat().st_uid != os.getuid()
        done = execute(sys.executable, "-c", CHECK, str(scene.folder / "model.onnx"), cwd=scene.folder)
        assert done.code == 0, done.err
        assert mine.read_text() == "precious"
