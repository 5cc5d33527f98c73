"""Language models: the mean over the tokens of the global batch, padding excluded, and perplexity."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.runner.data.keys import permutation
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


class Spoilt(Padded):
    """One label of a training sample is ``label``, or all have another dtype, or another shape."""

    def __init__(self, *, split: str, at: int = -1, label: int = 0, dtype: str = "int64", shape: str = "tokens"):
        super().__init__(split=split)
        if split == "train" and at >= 0:
            self.labels[at, 2] = label
        self.labels = self.labels.to(getattr(torch, dtype))
        if shape != "tokens":
            self.labels = self.labels[:, 0] if shape == "one" else torch.cat([self.labels, self.labels[:, :1]], 1)


SPOILT = tuple(f"data._target_={__name__}.Spoilt" if key.startswith("data._target_") else key for key in PADDED)
# In the first batch, and in the last one.
FIRST, LAST = (int(permutation(43, seed=1, epoch=0)[place]) for place in (0, -1))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ((f"+data.at={FIRST}", "+data.label=11"), rf"label 11 \(sample {FIRST} .* one of the model's 11 tokens"),
        ((f"+data.at={LAST}", "+data.label=11"), rf"label 11 \(sample {LAST} .* one of the model's 11 tokens"),
        ((f"+data.at={FIRST}", "+data.label=-1"), r"loss\.ignore_index=-100: the label -1 "),
        ((f"+data.at={LAST}", "+data.label=-1"), rf"the label -1 \(sample {LAST} .* one of the model's 11 tokens"),
        (("+data.dtype=float32",), r"labels are \(8, 6\) float32\. It needs the numbers of the next tokens"),
        (("+data.shape=one",), r"labels are \(8,\) int64\. .*for one class per sample set task=classification"),
        (("+data.shape=longer",), r"outputs of shape \(8, 6, 11\) for labels of shape \(8, 7\)"),
    ],
    ids=str,
)
def test_labels_that_are_no_tokens_are_refused_in_whichever_batch_they_come(tmp_path, keys, message):
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, small(*SPOILT, *keys))


def test_labels_of_other_integers_are_those_of_int64(tmp_path):
    found = [
        rows(train(tmp_path / dtype, small(*SPOILT, f"+data.dtype={dtype}")).folder.epochs)
        for dtype in ("int64", "int16")
    ]
    for name in ("train_loss", "val_loss", "val_perplexity"):
        assert found[0][0][name] == found[1][0][name]


def test_a_dict_is_given_as_keywords():
    task = LanguageModel(loss=nn.CrossEntropyLoss())
    batch = {"input_ids": 1, "labels": torch.tensor([[1, PADDING]])}
    assert task.inputs(batch) == {"input_ids": 1}
    assert task.count(batch) == 1
    logits = Tiny(num_classes=5)(torch.tensor([[1, 2]]))
    assert torch.equal(task.loss({"logits": logits}, batch), cross_entropy(logits[0, :1], torch.tensor([1])))
