"""data=hf data.order=stream: rows of local files as they come, as images, texts with classes and blocks of tokens."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
import torch

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.data.conftest import crops
from tests.in_process import attempt, opened, rows, small, train, weights
from tests.loop.test_session import killed_after
from tests.parallel.together import train_together

pytestmark = pytest.mark.needs("datasets")
WORDS = ("cold snow and ice", "warm sun and sand")
TEXT = ("task=language_model", "model=gpt", "model.width=24", "model.depth=1", "data.label_column=none")


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Four files of lines, of different lengths, and one to validate on."""
    path = tmp_path_factory.mktemp("texts")
    for file, count in (("train-0", 9), ("train-1", 12), ("train-2", 8), ("train-3", 11), ("validation", 8)):
        lines = ({"text": f"{file} {number} {WORDS[number % 2]}", "label": "cw"[number % 2]} for number in range(count))
        (path / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def given(path, *more: str) -> tuple[str, ...]:
    return ("data=hf", f"data.root={path}", "data.order=stream", "data.num_workers=0", "trainer.epochs=2", *more)


def of_text(path, *more: str) -> tuple[str, ...]:
    return given(path, *TEXT, "data.max_length=16", "data.epoch_samples=48", "data.batch_size=8", *more)


def test_texts_with_classes_are_the_rows_of_all_files(tmp_path, texts):
    classes = ("data.classes=[c,w]", "data.max_length=32", "data.epoch_samples=32", "data.batch_size=8")
    with opened(tmp_path, small(*given(texts, "model=mlp", *classes))) as trainer:
        samples = trainer.train.batches.dataset
        assert (samples.classes, trainer.evaluation.loader.samples) == (["c", "w"], 8)
        said = [bytes(samples[index]["input_ids"].tolist()).rstrip(b"\0").decode() for index in range(8)]
        assert said == [f"train-{file} {row} {WORDS[row]}" for file in range(4) for row in range(2)]
        assert [int(samples[index]["labels"]) for index in range(4)] == [0, 1, 0, 1]


def test_text_is_cut_into_blocks_and_a_killed_run_continues(tmp_path, texts):
    config = small(*of_text(texts, "data.num_workers=1", "checkpoint.every=4"))
    undisturbed = train(tmp_path / "undisturbed", config)
    killed_after(tmp_path / "killed", config, 7)
    resumed = train(tmp_path / "killed", config)
    one, other = weights(undisturbed.trainer), weights(resumed.trainer)
    assert all(torch.equal(one[name], other[name]) for name in one)
    reading = resumed.trainer.train.batches.dataset
    assert reading.keeps_state
    reading.set_epoch(0)
    tokens, labels = reading[0]
    assert bytes(tokens.tolist()).decode() == f"train-0 0 {WORDS[0]}"[:16]
    assert torch.equal(tokens[1:], labels[:-1])


@pytest.mark.processes
def test_two_ranks_take_the_blocks_of_one(tmp_path, texts):
    common = of_text(texts, "precision=fp64", "trainer.epochs=1")
    alone = train(tmp_path / "one", small(*common)).folder
    (tmp_path / "two").mkdir()
    train_together(tmp_path / "two", 2, {"ddp": partial(tuple, ["parallel=ddp", *common])})
    one, two = (float(rows(run.epochs)[-1]["train_loss"]) for run in (alone, RunFolder(tmp_path / "two/ddp")))
    assert one == pytest.approx(two, rel=1e-12)


def test_images_are_those_that_are_read_by_number(tmp_path):
    for split, count, first in (("train", 4, 0), ("validation", 2, 4)):
        for name in ("cat", "coffee"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for number, crop in enumerate(crops(name, count, first=first)):
                crop.save(tmp_path / "photos" / split / name / f"{number}.png")
    sizes = ("data.image_size=24", "data.batch_size=4", "model.width=2")
    streamed = small(*given(tmp_path / "photos", *sizes, "data.epoch_samples=8"))
    numbered = small(*given(tmp_path / "photos", *sizes, "data.order=auto"))
    with opened(tmp_path / "one", streamed) as one, opened(tmp_path / "other", numbered) as other:
        assert one.evaluation.loader.batches.dataset.preprocess == other.evaluation.loader.batches.dataset.preprocess
        both = [next(trainer.evaluation.loader.epoch(0)).content for trainer in (one, other)]
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(*both, strict=True))
        assert one.train.batches.dataset[0][0].shape == (3, 24, 24)


REFUSED = {
    "no number of samples": (("data.classes=[c,w]",), "Set data.epoch_samples, the number of training samples"),
    "no classes": (("data.epoch_samples=8",), "data.classes=null: a stream is not searched for the values"),
    "another class": (("data.epoch_samples=8", "data.classes=[c,d]"), "a row has w, which is not among the classes"),
    "drawn": (("data.epoch_samples=8", "data.val_fraction=0.2"), "validation samples can't be selected from a stream"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stream_cannot_tell_is_asked_for(tmp_path, texts, name):
    more, words = REFUSED[name]
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        attempt(tmp_path, small(*given(texts, "data.batch_size=8", "model=mlp", *more)))
