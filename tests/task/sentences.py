"""A task of one's own from end to end, named by ``_target_``: sentences of unlike lengths, predicted word by word."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from manyheads.runner.metrics.metric import Metric
from manyheads.runner.task.rank.task import Task

WORDS, PADDING = 11, -100


class Sentences:
    """Item i is a tensor of 2 to 9 words; batches are dicts, with labels that leave out the padding."""

    def __init__(self, *, split: str, size: int = 40):
        generator = torch.Generator().manual_seed(len(split))
        lengths = torch.randint(2, 10, (size,), generator=generator).tolist()
        self.sentences = [torch.randint(WORDS, (length,), generator=generator) for length in lengths]

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> Tensor:
        return self.sentences[index]

    @staticmethod
    def collate_fn(samples: list[Tensor]) -> dict[str, Tensor]:
        pad = nn.utils.rnn.pad_sequence
        return {
            "words": pad([each[:-1] for each in samples], batch_first=True),
            "labels": pad([each[1:] for each in samples], batch_first=True, padding_value=PADDING),
        }


class Bigrams(nn.Module):
    """The next word from the one before; called with keywords, and returns a dict."""

    def __init__(self, *, width: int = 6):
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)

    def forward(self, *, words: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(torch.tanh(self.embedding(words)))}


class Perplexity(Metric):
    """exp of the mean loss of a word."""

    direction = "min"
    shapes = {"nats": (), "words": ()}

    def value(self, sums):
        return math.exp(float(sums["nats"] / sums["words"])) if sums["words"] else None


class NextWord(Task):
    """The loss is over words, of which each micro-batch has another number."""

    metrics = (Perplexity("perplexity", short="ppl"),)
    monitor = "perplexity"

    def inputs(self, batch):
        return {"words": batch["words"]}

    def count(self, batch):
        return int((batch["labels"] != PADDING).sum())

    def loss(self, outputs, batch):
        return cross_entropy(
            outputs["logits"].flatten(0, 1), batch["labels"].flatten(), ignore_index=PADDING, reduction="sum"
        )

    def statistics(self, outputs, batch):
        return {"nats": self.loss(outputs, batch), "words": (batch["labels"] != PADDING).sum()}


class Averaged(NextWord):
    """The same, as torch's own losses have it: a mean over the words of a batch."""

    reduction = "mean"

    def loss(self, outputs, batch):
        return cross_entropy(outputs["logits"].flatten(0, 1), batch["labels"].flatten(), ignore_index=PADDING)

    def statistics(self, outputs, batch):
        words = (batch["labels"] != PADDING).sum()
        return {"nats": self.loss(outputs, batch) * words, "words": words}
