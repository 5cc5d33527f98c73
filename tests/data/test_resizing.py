"""Progressive resizing: sizes follow from the epoch alone, whatever ranks, workers and interruptions there are."""

import re
from itertools import pairwise

import pytest
import torch

from manyheads.runner.data.rank.resizing import Resizing
from manyheads.runner.errors import ConfigurationError
from tests.in_process import attempt, opened, small, train, weights

GROWING = (
    *("data.image_size=16", "trainer.epochs=5", "trainer.resize_from=8", "trainer.resize_end=0.8"),
    *("trainer.resize_step=2", "trainer.max_steps=100"),
)
FEW = ("data.train_samples=24", "data.val_samples=8")


def test_the_side_grows_in_a_line_between_two_shares_of_the_epochs():
    resizing = Resizing(first=88, last=176, start=0.4, end=0.8, step=4, epochs=40)
    sides = [resizing.side(epoch) for epoch in range(40)]
    assert sides[:17] == [88] * 17
    assert sides[32:] == [176] * 8
    assert sides[24] == 132
    assert all(0 <= later - earlier <= 8 and later % 4 == 0 for earlier, later in pairwise(sides))
    assert {Resizing(10, 13, 0.0, 0.5, 4, 8).side(epoch) for epoch in range(8)} == {10, 12, 13}


def sides(trainer) -> list[tuple[int, ...]]:
    return [tuple(next(trainer.train.epoch(epoch)).inputs.shape[2:]) for epoch in range(5)]


def test_batches_have_the_size_of_their_epoch_and_evaluations_the_full_one(tmp_path):
    with opened(tmp_path, small(*GROWING, *FEW)) as trainer:
        assert sides(trainer) == [(8, 8), (10, 10), (12, 12), (14, 14), (16, 16)]
        assert trainer.train.example().inputs.shape[2:] == (16, 16)  # what takes most memory is tried first
        assert next(trainer.evaluation.loader.epoch(0)).inputs.shape[2:] == (16, 16)


@pytest.mark.parametrize("workers", [0, 2])
def test_photos_are_cropped_to_it_and_transformed_after(tmp_path, photos, workers):
    given = (
        *("data=imagefolder", f"data.root={photos}", "data.image_size=32", f"data.num_workers={workers}"),
        *("data.batch_size=2", "trainer.epochs=2", "trainer.resize_from=16", "trainer.resize_end=0.5"),
        *("data.val_fraction=0.4", "data.transform=[{_target_: torchvision.transforms.v2.RandomHorizontalFlip}]"),
    )
    with opened(tmp_path, small(*given)) as trainer:
        found = [{tuple(batch.inputs.shape[2:]) for batch in trainer.train.epoch(epoch)} for epoch in (0, 1, 0)]
        assert found == [{(16, 16)}, {(32, 32)}, {(16, 16)}]
        assert {tuple(batch.inputs.shape[2:]) for batch in trainer.evaluation.loader.epoch(0)} == {(32, 32)}


class Growing:
    """A data set of the user's own that can be resized; its only split."""

    classes = ("even", "odd")
    image_size = 12

    def __init__(self, split: str):
        self.side = self.image_size

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int):
        return torch.full((3, self.side, self.side), index / 20), index % 2

    def resize(self, side: int | None) -> None:
        self.side = side or self.image_size


def test_validation_samples_drawn_from_the_training_samples_keep_their_size(tmp_path):
    own = ("data=custom", f"data._target_={__name__}.Growing", "data.num_workers=0", "data.val_fraction=0.3")
    with opened(tmp_path, small(*own, "data.batch_size=4", "trainer.epochs=5", "trainer.resize_from=6")) as trainer:
        assert sides(trainer) == [(6, 6), (8, 8), (8, 8), (12, 12), (12, 12)]
        next(trainer.train.epoch(0))
        assert next(trainer.evaluation.loader.epoch(0)).inputs.shape[2:] == (12, 12)


def test_it_is_resumed_to_the_bit_and_the_same_in_micro_batches(tmp_path):
    given = (*GROWING, "trainer.epochs=3", "checkpoint.every=10", "data.train_samples=80", "precision=fp64")
    whole = train(tmp_path / "whole", small(*given))
    train(tmp_path / "cut", small(*given, "trainer.stop_after=17"))
    resumed = train(tmp_path / "cut", small(*given))
    assert resumed.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]
    halves = train(tmp_path / "halves", small(*given, "trainer.grad_accumulation=2"))
    for name, weight in weights(whole.trainer).items():
        torch.testing.assert_close(weights(halves.trainer)[name], weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("data=diabetes", "task=regression", "model=mlp"), "the samples of data=diabetes have no size that could"),
        (("data=shapes", "task=segmentation", "model=fcn_resnet50"), "the samples of data=shapes have no size"),
        (("data.image_size=4",), "trainer.resize_from=8 is more than the 4 pixels of training images."),
        (("trainer.resize_start=0.8",), "trainer.resize_start=0.8 is not before trainer.resize_end=0.8. Lower it."),
    ],
)
def test_it_is_refused_where_there_is_nothing_to_resize(tmp_path, overrides, text):
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small("trainer.resize_from=8", *overrides))
