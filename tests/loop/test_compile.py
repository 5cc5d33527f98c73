"""trainer.compile, without a compiler: what is compiled, and what CUDA graphs would do to outputs that are kept."""

from collections import Counter
from importlib import metadata

import pytest
import torch
from torch import nn

from manyheads.launchers.environment import file_rendezvous, variables_set
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.compile import compile_in_place, is_compiled
from tests.in_process import opened, small, train, weights
from tests.loop.test_trainer import assert_same
from tests.torch_versions import from_torch

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Replayed(nn.Module):
    """Where every pass writes its outputs into the same memory, as that of a CUDA graph does."""

    def compile(self, *, mode):
        memory = torch.zeros(2)

        def replay(inputs):
            memory.copy_(inputs)
            return {"logits": memory, "more": [memory]}

        self._compiled_call_impl = replay


@pytest.mark.parametrize(
    ("mode", "device", "kept"),
    [
        ("reduce-overhead", GPU, True),
        ("max-autotune", GPU, True),
        ("max-autotune-no-cudagraphs", GPU, False),
        ("reduce-overhead", CPU, False),
    ],
)
def test_outputs_outlive_the_next_pass_where_there_are_graphs(mode, device, kept):
    model = Replayed()
    compile_in_place(model, mode, device)
    first = model(torch.tensor([1.0, 2.0]))
    model(torch.tensor([3.0, 4.0]))
    expected = [1.0, 2.0] if kept else [3.0, 4.0]
    assert (first["logits"].tolist(), first["more"][0].tolist()) == (expected, expected)


@pytest.fixture
def graphs(monkeypatch) -> list[bool]:
    """Whether each graph was to have gradients, by the compiler that looks through a model and writes no code."""
    graphs: list[bool] = []

    def backend(graph, inputs):
        graphs.append(torch.is_grad_enabled())
        return graph

    def compile(module, *, mode):
        module._compiled_call_impl = torch.compile(module._call_impl, backend=backend)

    monkeypatch.setattr(nn.Module, "compile", compile)
    return graphs


@from_torch("2.8")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler looks at it
def test_alike_blocks_are_compiled_once(tmp_path, graphs):
    torch._dynamo.reset()
    text = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "trainer.max_steps=2")
    options = small("model=gpt", "model.width=24", *text, "trainer.compile=default", "trainer.compile_units=[auto]")
    with opened(tmp_path, options) as trainer:
        blocks = [module for module in trainer.update.model.modules() if module._compiled_call_impl is not None]
        assert is_compiled(trainer.update.model)
        trainer.fit(lambda **_: None, due_after_step=lambda _: False)
    assert len(blocks) > 3
    assert 1 <= graphs.count(True) <= 2  # the first one's input comes from elsewhere than the others'


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.filterwarnings("ignore:Detected that context_fn is passed")
@pytest.mark.parametrize(
    ("units", "setting"),
    [
        pytest.param(("trainer.compile_units=[EncoderBlock]",), "[EncoderBlock]", marks=from_torch("2.8")),
        pytest.param(("trainer.compile_units=[auto]",), "selective", marks=from_torch("2.8")),
        ((), "[EncoderBlock]"),
    ],
)
def test_recomputed_blocks_are_compiled_too(tmp_path, graphs, units, setting):
    torch._dynamo.reset()
    vit = ("model=custom", "model._target_=tests.parallel.models.ViT", "data.image_size=16", "trainer.max_steps=2")
    recomputed = (f"trainer.recompute={setting}", "trainer.compile=default", *units)
    plain, compiled = train(tmp_path / "plain", small(*vit)), train(tmp_path / "compiled", small(*vit, *recomputed))
    assert graphs.count(True)
    assert_same(weights(compiled.trainer), weights(plain.trainer))


@pytest.mark.tail
@pytest.mark.needs("gcc")
def test_autotuning_prints_no_tables(tmp_path, monkeypatch, capfd):
    """On CPUs, torch tries several kernels only where weights are constants; what it found before it keeps in files."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = nn.Linear(64, 64).eval()
    compile_in_place(model, "max-autotune-no-cudagraphs", CPU)
    with torch._inductor.config.patch(freezing=True, fx_graph_cache=False), torch.no_grad():
        model(torch.randn(32, 64))
    assert is_compiled(model)
    assert "autotune" not in capfd.readouterr().err.lower()


def test_a_torch_that_compiles_alike_blocks_one_by_one_is_refused(monkeypatch):
    """From the ninth on it leaves them as they are."""
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.7.1" if name == "torch" else real(name))
    with pytest.raises(ConfigurationError, match=r"trainer\.compile_units: it needs torch 2\.8 .* Or set it to \[\]"):
        small("trainer.compile_units=[auto]", "trainer.compile=default")


@from_torch("2.8")
@pytest.mark.parametrize(
    ("compile", "said"), [("none", "nothing is compiled"), ("reduce-overhead", "CUDA graphs capture a whole model")]
)
def test_units_that_would_not_be_compiled_are_refused(compile, said):
    with pytest.raises(ConfigurationError, match=rf"trainer\.compile_units: with trainer\.compile={compile} {said}"):
        small("trainer.compile_units=[auto]", f"trainer.compile={compile}")


@pytest.mark.parametrize("strategy", [("parallel=single",), ("parallel=ddp", "launcher=inline")], ids=" ".join)
def test_training_and_evaluation_run_the_same_compiled_model(tmp_path, monkeypatch, strategy):
    calls: Counter[bool] = Counter()

    def compile(module, *, mode):
        def called(*arguments):
            calls[module.training] += 1
            return module._call_impl(*arguments)

        module._compiled_call_impl = called

    monkeypatch.setattr(nn.Module, "compile", compile)
    options = small(*strategy, "trainer.compile=default", "trainer.max_steps=3")
    with file_rendezvous() as meeting, variables_set(meeting), opened(tmp_path, options) as trainer:
        trainer.fit(lambda **_: None, due_after_step=lambda _: False)
        trainer.update.parallel.leave()
    assert calls == {True: 3, False: trainer.evaluation.loader.updates}


def test_evaluation_s_last_batch_is_not_compiled_for(tmp_path, graphs):
    options = small("trainer.compile=default", "trainer.max_steps=3")
    with opened(tmp_path, options) as trainer:
        sizes = {len(batch.inputs) for batch in trainer.evaluation.loader.epoch(0)}
        trainer.evaluate()
        trainer.evaluate()
    assert sizes == {8, 5}
    assert graphs == [False]
