"""Language models: the mean over the tokens of the global batch, padding excluded, and perplexity."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.task.rank.language_model import LanguageModel
from tests.in_process import config, rows, small, train
from tests.task.language import PADDING, Padded, Tiny

TEXT = (
    *("task=language_model", "data=stdlib_text", "data.max_tokens=2000", "data.block_size=16", "precision=fp64"),
    *("model=custom", "model._target_=tests.task.language.Tiny", "trainer.epochs=1", "trainer.log_every=1"),
)
PADDED = (
    *("task=language_model", "data=custom", "data._target_=tests.task.language.Padded", "precision=fp64"),
    *("model=custom", "model._target_=tests.task.language.Tiny", "data.num_workers=0", "data.drop_last=false"),
    *("trainer.epochs=1", "trainer.log_every=1", "optimizer.lr=0.2"),
)


def test_the_standard_library_is_learned(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = train(tmp_path, small(*TEXT, "optimizer.lr=0.5", "trainer.epochs=2"))
    result = run.folder.read_result()
    first, *_, last = rows(run.folder.steps)
    assert float(first["loss"]) == pytest.approx(math.log(256), rel=0.05)
    assert float(last["loss"]) < 5
    assert result["metrics"]["val_perplexity"] == pytest.approx(math.exp(result["metrics"]["val_loss"]))
    assert result["objective"] == result["best"]["val_perplexity"]
    assert {*result["data_sha256"]} == {"train", "val"}


@pytest.mark.parametrize("more", [[], ["+model.as_dict=true"], ["+loss.label_smoothing=0.1"]])
def test_perplexity_is_that_of_all_tokens_together(tmp_path, more):
    run = train(tmp_path, small(*PADDED, *more))
    data, model = Padded(split="val"), run.update.model.eval()
    with torch.no_grad():
        outputs = model(data.tokens[:, :-1])
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs
    nats = cross_entropy(logits.flatten(0, 1), data.labels.flatten(), ignore_index=PADDING)
    measured = run.folder.read_result()["metrics"]
    assert measured["val_perplexity"] == pytest.approx(float(nats.exp()), rel=1e-9)
    assert (measured["val_loss"] == pytest.approx(float(nats), rel=1e-9)) == ("smoothing" not in str(more))


def test_micro_batches_of_padding_alone_change_nothing(tmp_path):
    whole = train(tmp_path / "whole", small(*PADDED))
    parts = train(tmp_path / "parts", small(*PADDED, "trainer.grad_accumulation=8"))
    for key in ("loss", "grad_norm"):
        one, other = ([float(row[key]) for row in rows(run.folder.steps)] for run in (whole, parts))
        assert other == pytest.approx(one, rel=1e-9)


def test_what_is_no_language_model_is_told():
    task = LanguageModel(loss=nn.CrossEntropyLoss())
    labels = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ConfigurationError, match=r"needs \(samples, tokens, vocabulary\)"):
        task.loss(torch.zeros(2, 7), (None, labels))
    with pytest.raises(ConfigurationError, match="no logits"):
        task.loss({"hidden": torch.zeros(2, 3, 7)}, (None, labels))
    with pytest.raises(ConfigurationError, match="vocabulary is 7, the data's is 11"):
        LanguageModel(loss=nn.CrossEntropyLoss(), data=Padded).loss(torch.zeros(2, 3, 7), (None, labels))
    with pytest.raises(ConfigurationError, match=r"MSELoss is not supported by task=language_model"):
        LanguageModel(loss=nn.MSELoss())
    with pytest.raises(ConfigurationError, match=r"val_acc1 is not measured\. Allowed: auto, val_loss, val_perplexity"):
        config("task=language_model", "checkpoint.monitor=val_acc1")


def test_a_dict_is_given_as_keywords():
    task = LanguageModel(loss=nn.CrossEntropyLoss())
    batch = {"input_ids": 1, "labels": torch.tensor([[1, PADDING]])}
    assert task.inputs(batch) == {"input_ids": 1}
    assert task.count(batch) == 1
    logits = Tiny(num_classes=5)(torch.tensor([[1, 2]]))
    assert torch.equal(task.loss({"logits": logits}, batch), cross_entropy(logits[0, :1], torch.tensor([1])))
