"""``python -m runner export``: files that compute what the model does, tried as another program would."""

import json
from dataclasses import replace

import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_model
from torch import nn

import manyheads
from manyheads.runner.errors import ConfigurationError, Unavailable
from manyheads.runner.serve import formats
from manyheads.runner.serve.formats import FORMATS, refuse_missing
from manyheads.runner.serve.rank import export as exporting
from manyheads.runner.serve.rank import export_formats
from manyheads.runner.serve.rank.export import Differs, export
from manyheads.runner.serve.rank.trained import Trained

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def trained(photo_run) -> Trained:
    return manyheads.load(photo_run.folder.path)


def as_others_call_it(format: str, file, images: torch.Tensor, trained: Trained) -> torch.Tensor:
    if format == "torch_export":
        with export_formats.without("The given buffer is not writable"):
            return torch.export.load(file).module()(images)
    if format == "onnx":
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])
    again = manyheads.load(trained.folder, which="last").model
    again.load_state_dict(load_file(file))
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (trained.description.mean, trained.description.std))
    return again((images - mean) / std)


@pytest.mark.parametrize("format", FORMATS)
def test_a_photo_in_0_to_1_gives_the_model_s_logits(command, tmp_path, photo_run, photos, trained, format):
    done = command("export", photo_run.folder.path, "--format", format, "--out", "model.file")
    assert done.code == 0, done.err
    assert "its outputs differ from the model's by at most" in done.out
    paths = sorted((photos / "val").glob("*/*.jpg"))[:3]
    images = torch.stack([trained.preprocess.sample(path) for path in paths]).float() / 255
    for count in (3, 1):
        expected = trained.outputs(trained.preprocess.batch(paths[:count]))
        found = as_others_call_it(format, tmp_path / "model.file", images[:count], trained)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_the_file_says_what_it_takes_and_gives(tmp_path, trained, format):
    file = tmp_path / "model"
    export(trained, format, file)
    if format == "torch_export":
        extra = {"metadata.json": ""}
        torch.export.load(file, extra_files=extra)
        facts = json.loads(extra["metadata.json"])
    elif format == "onnx":
        facts = {each.key: json.loads(each.value) for each in onnx.load(file).metadata_props}
    else:
        with safe_open(file, "pt") as opened:
            facts = {key: json.loads(text) for key, text in opened.metadata().items() if key != "format"}
    assert facts["classes"] == ["cat", "coffee", "person"]
    assert facts["input"] == {"name": "images", "dtype": "float32", "shape": ["batch", 3, 24, 24], "range": [0, 1]}
    assert facts["output"] == {"name": "outputs", "kind": "logits"}
    assert facts["mean"] == list(trained.description.mean)
    assert facts["preprocess"] == {"mode": "RGB", "resize": "shorter_side", "size": 27, "crop": 24}


def test_without_a_name_the_file_is_in_the_run_s_folder(command, photo_run):
    done = command("export", photo_run.folder.path, "--format", "safetensors")
    assert done.code == 0, done.err
    (photo_run.folder.path / "model.safetensors").unlink()


def test_a_file_that_computes_something_else_is_not_left(monkeypatch, tmp_path, trained, command):
    def write(served, file, facts):
        state = {name: tensor + 1e-2 for name, tensor in served.model.state_dict().items()}
        spoilt = manyheads.load(trained.folder).model
        spoilt.load_state_dict(state)
        save_model(spoilt, str(file))

    monkeypatch.setattr(export_formats.WRITERS["safetensors"], "write", write)
    with pytest.raises(Differs, match=r"its outputs differ by .* No file was left"):
        export(trained, "safetensors", tmp_path / "model")
    done = command("export", trained.folder, "--format", "safetensors", "--out", "model")
    assert (done.code, "Traceback" in done.err) == (3, False)
    assert not list(tmp_path.iterdir())


class Tied(nn.Module):
    """Two names of one weight, and one that is not contiguous."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.turned = nn.Parameter(torch.rand(4, 3).t())

    def forward(self, images):
        return self.second(self.first(images.mean((2, 3)) @ self.turned))


@pytest.mark.filterwarnings("ignore:No complete tensor found in the group:UserWarning")  # of what is not contiguous
def test_tied_weights_and_such_that_are_not_contiguous(tmp_path, trained):
    for format in FORMATS:
        export(replace(trained, model=Tied().eval()), format, tmp_path / format)
    assert {*load_file(tmp_path / "safetensors")} in ({"first.weight", "turned"}, {"second.weight", "turned"})


def test_a_model_that_cannot_be_traced_is_said(tmp_path, trained):
    class Branching(nn.Module):
        def forward(self, images):
            return images.mean((2, 3)) if images.sum() > 0 else images.amax((2, 3))

    with pytest.raises(ConfigurationError, match="its model can't be exported as torch_export: "):
        export(replace(trained, model=Branching()), "torch_export", tmp_path / "model")
    unknown = replace(trained, description=replace(trained.description, shape=None))
    with pytest.raises(ConfigurationError, match="takes more than one tensor"):
        export(unknown, "torch_export", tmp_path / "model")
    with pytest.raises(ConfigurationError, match="the folder .* does not exist"):
        export(trained, "torch_export", tmp_path / "no" / "model")
    assert not list(tmp_path.iterdir())


def test_a_package_that_is_missing_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="--format onnx needs onnx and onnxscript. Install: pip install"):
        refuse_missing("onnx")
    refuse_missing("torch_export")


def test_without_onnxruntime_onnx_s_own_reference_checks(monkeypatch, tmp_path, trained):
    monkeypatch.setattr(export_formats, "find_spec", lambda name: None)
    assert export(trained, "onnx", tmp_path / "model.onnx") < exporting.BOUND
