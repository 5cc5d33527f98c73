"""Models as public repositories have them train unchanged: traits of nanoGPT, and of models with a collator."""

import pytest
import torch

from manyheads.runner.model.rank.build_model import build_model
from manyheads.runner.option.declared import declared
from manyheads.runner.task.rank.own_loss import OwnLoss
from tests.in_process import rows, small, train

MODELS = '''
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

@dataclass
class Config:
    vocabulary: int = 8
    width: int = 4

class Language(nn.Module):
    """A config object, tied weights, a view of the labels, a tuple with its loss."""
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, targets=None):
        logits = self.head(self.embedding(tokens))
        loss = None
        if targets is not None:
            loss = cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

class Tagger(Language):
    """Keywords, and an object with its loss."""
    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.head(self.embedding(input_ids)) * attention_mask[..., None]
        loss = cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1)) if labels is not None else None
        return SimpleNamespace(loss=loss, logits=logits)

class Chars:
    vocab_size = 8
    def encode(self, text):
        return [ord(each) % 8 for each in text]

class Sentences:
    """Of different lengths, padded by its own collator."""
    def __init__(self, split):
        self.start = 0 if split == "train" else 100
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return torch.arange(self.start + index, self.start + index + 3 + index % 4) % 8
    def collate_fn(self, samples):
        ids = nn.utils.rnn.pad_sequence(samples, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in samples], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
'''


@pytest.fixture
def published(tmp_path):
    (tmp_path / "published.py").write_text(MODELS)
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 60)
    return f"{tmp_path}/published.py"


def own(published: str, name: str) -> tuple[str, ...]:
    model = f"model=custom,model._target_={published}:{name},+model.config._target_={published}:Config"
    return (*model.split(","), "task=own_loss", "data.batch_size=8", "optimizer=adamw", "optimizer.lr=0.05")


def test_a_language_model_that_computes_its_loss(published, tmp_path):
    data = ("data=text", f"data.root={tmp_path}/text.txt", "data.block_size=16")
    tokenizer = f"++data.tokenizer._target_={published}:Chars"
    run = train(tmp_path / "run", small(*data, tokenizer, *own(published, "Language"), "task.ignore_index=-1"))
    epochs = rows(run.folder.epochs)
    assert float(epochs[-1]["val_loss"]) < float(epochs[0]["val_loss"])
    weights = run.trainer.update.model.state_dict()
    assert weights["head.weight"].data_ptr() == weights["embedding.weight"].data_ptr()
    assert isinstance(run.update.scores.task, OwnLoss)


def test_a_model_that_takes_what_a_collator_makes(published, tmp_path):
    data = ("data=custom", f"data._target_={published}:Sentences", "data.num_workers=0")
    run = train(tmp_path / "run", small(*data, *own(published, "Tagger"), "trainer.epochs=2"))
    epochs = rows(run.folder.epochs)
    assert float(epochs[-1]["val_loss"]) < float(epochs[0]["val_loss"])


def test_an_option_without_the_usual_keys():
    """Of a model of one's own: neither num_classes nor pretrained."""
    option = declared("model", {"_target_": "torch.nn.Linear", "name": "mine", "in_features": 2, "out_features": 3})
    built = build_model(option, type("Nothing", (), {"num_classes": 5})())
    assert isinstance(built.model, torch.nn.Linear)
    assert built.model.out_features == 3
