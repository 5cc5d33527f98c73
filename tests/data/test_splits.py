"""Validation samples drawn from the training samples, folds, test samples, and transforms by config."""

import itertools
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torchvision import transforms, tv_tensors
from torchvision.transforms import v2

from manyheads.runner.data.imagefolder import ImageFolder
from manyheads.runner.data.partition import Partition
from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.in_memory import InMemory
from manyheads.runner.data.rank.rng import GENERATORS
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.rank.transformed import Transformed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.records.run_result import Result
from tests.data.conftest import save_photos
from tests.in_process import build_dataset, config, rows, small, train, typed
from tests.zoo import Noise

FLIP = "torchvision.transforms.v2.RandomHorizontalFlip"
NOISE = "torchvision.transforms.v2.ColorJitter"


def splits(*overrides: str):
    section = typed(*overrides).data
    data = build_data(section)
    return {split: build_split(data, split, section) for split in ("train", "val", "test")}


def items(dataset):
    return {tuple(np.asarray(dataset[index][0]).reshape(-1).tolist()) for index in range(len(dataset))}


@pytest.mark.parametrize(
    "data",
    [
        ["data=synthetic", "data.image_size=4", "data.train_samples=50", "data.val_samples=10"],
        ["data=diabetes"],
        ["data=custom", "data._target_=tests.task.zoo.Tables", "+data.size=50"],
    ],
)
def test_a_drawn_split_shares_no_sample_and_its_own_one_tests(data):
    whole = splits(*data, "data.val_fraction=0.2")
    section = typed(*data).data
    own = {split: build_split(build_data(section), split, section) for split in ("train", "val")}
    assert items(whole["train"]) | items(whole["val"]) == items(own["train"])
    assert not items(whole["train"]) & items(whole["val"])
    assert len(whole["val"]) == round(0.2 * len(own["train"]))
    assert items(whole["test"]) == items(own["val"])


def test_folds_are_a_partition_that_the_run_s_seed_does_not_change():
    parts = [Partition.of(None, folds=5, fold=fold, seed=3) for fold in range(5)]
    chosen = [part.indices(33, train=False).tolist() for part in parts]
    assert sorted(itertools.chain(*chosen)) == list(range(33))
    assert all(sorted([*v, *p.indices(33, train=True)]) == list(range(33)) for v, p in zip(chosen, parts, strict=True))
    other = Partition.of(None, folds=5, fold=0, seed=4)
    assert other.indices(33, train=False).tolist() != chosen[0]


def test_of_an_image_folder_the_part_that_validates_is_not_augmented(tmp_path):
    root = save_photos(tmp_path)
    found = splits("data=imagefolder", f"data.root={root}", "data.image_size=16", "data.folds=2", "data.fold=1")
    assert found["train"].train
    assert not found["val"].train
    assert not {*found["train"].paths} & {*found["val"].paths}
    assert sorted([*found["train"].paths, *found["val"].paths]) == sorted(map(str, (root / "train").rglob("*.jpg")))
    assert all(
        f"/{found['val'].classes[found['val'].targets[i]]}/" in path for i, path in enumerate(found["val"].paths)
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.val_fraction=0.1", "data.folds=3", "data.fold=0"], "two ways to select"),
        (["data.folds=3"], "set both, fold from 0 to folds - 1"),
        (["data.folds=3", "data.fold=3"], "set both, fold from 0 to folds - 1"),
        (["data.val_fraction=1.5"], "data.val_fraction=1.5 is not allowed"),
        (["data.transform=[{target: x}]"], "a list, each {_target_: <class>, ...}"),
    ],
)
def test_mistakes_are_told(overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        config(*overrides)


def test_without_test_samples_the_error_says_how_to_get_some(tmp_path):
    with pytest.raises(ConfigurationError, match=r"data=synthetic has no samples to test on. Set data.val_fraction"):
        train(tmp_path, small("trainer.test=true"))


class TwoWays(torch.utils.data.Dataset):
    """Returns the same samples for all splits but one, like many functions that are given the name of a split."""

    def __init__(self, split: str, alone: str):
        if alone == split == "test":
            raise ValueError(split)
        self.images = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(int(split == alone)))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index % 3


@pytest.mark.parametrize(
    ("alone", "message"),
    [
        ("train", "trainer.test=true: data=custom returns its validation samples as test samples"),
        ("val", "trainer.test=true: data=custom returns its training samples as test samples"),
        ("test", 'TwoWays has no samples for split="test": ValueError: test. Set data.val_fraction'),
    ],
)
def test_samples_of_another_split_are_not_tested_on(tmp_path, alone, message):
    own = ("data=custom", f"data._target_={__name__}.TwoWays", f"+data.alone={alone}", "data.num_classes=3")
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        train(tmp_path, small(*own, "trainer.test=true", "model.width=2"))
    assert caught.value.key == "trainer.test"


def test_the_best_weights_are_tested_once_at_the_end(tmp_path):
    overrides = ("trainer.test=true", "data.val_fraction=0.25", "optimizer.lr=0.2")
    run = train(tmp_path / "tested", small(*overrides))
    other = train(tmp_path / "not", small(*overrides[1:]))
    result, plain = run.folder.read_result(), other.folder.read_result()
    assert result["weights_sha256"] == plain["weights_sha256"]
    assert "test" not in plain
    best = torch.load(run.folder.best_checkpoint)["model"]
    model = run.update.model
    model.load_state_dict(best)
    right = sum(
        int((model.eval()(batch.inputs).argmax(1) == batch.content[1]).sum())
        for batch in run.trainer.test.loader.epoch(0)
    )
    assert result["test"]["test_samples"] == 37
    assert result["test"]["test_acc1"] == pytest.approx(100 * right / 37)
    assert result["test"]["checkpoint"] == "best.pt"
    assert (Result.of(run.folder.path).test, Result.of(other.folder.path).test) == (result["test"], None)
    assert "test_loss" not in rows(run.folder.epochs)[0]


def transformed(*, indices: list[int], epoch: int = 1):
    entry = f"[{{_target_: {FLIP}}},{{_target_: {NOISE}, brightness: 0.5}}]"
    section = RunConfig.of(small(f"data.transform={entry}")).data
    samples = build_split(build_data(section), "train", section)
    batches = BatchDataset(samples, seed=1, on_corrupt="error", replace_corrupt=True)
    return batches.fetch(BatchIndices(epoch, np.array(indices), len(indices), 1.0)).content[0]


def test_transforms_are_drawn_by_seed_epoch_and_sample():
    whole = transformed(indices=[*range(12)])
    assert torch.equal(torch.cat([transformed(indices=[*range(5)]), transformed(indices=[*range(5, 12)])]), whole)
    assert not torch.equal(transformed(indices=[*range(12)], epoch=2), whole)
    assert whole.dtype == torch.uint8


def test_any_number_of_loader_processes_gives_the_same(tmp_path):
    entry = f"data.transform=[{{_target_: {FLIP}}}]"
    runs = [
        train(tmp_path / str(workers), small(entry, f"data.num_workers={workers}", "trainer.max_steps=5"))
        for workers in (0, 2)
    ]
    digests = {run.folder.read_result()["weights_sha256"] for run in runs}
    assert len(digests) == 1
    plain = train(tmp_path / "plain", small("trainer.max_steps=5")).folder.read_result()
    assert plain["weights_sha256"] not in digests


def test_transforms_of_photos_are_given_contiguous_images(photos):
    seen = []
    dataset = build_dataset(ImageFolder(root=str(photos), image_size=16), train=True)
    Transformed(dataset, [lambda image: seen.append(image.is_contiguous())])[0]
    assert seen == [True]
    assert not dataset[0][0].is_contiguous()


def test_masks_are_moved_with_their_images():
    section = typed("data=shapes", "data.train_samples=4", f"data.transform=[{{_target_: {FLIP}, p: 1}}]").data
    data = build_data(section)
    image, mask = build_split(data, "train", section)[1]
    own, own_mask = build_split(data, "train", type(section)({**section.section, "transform": []}))[1]
    assert torch.equal(image, own.flip(-1))
    assert torch.equal(mask, own_mask.flip(-1))
    assert type(mask) is torch.Tensor


def random_transforms() -> Iterator[v2.Transform]:
    """Those of torchvision's that draw something."""
    names = "AugMix AutoAugment ColorJitter ElasticTransform RandAugment RandomAutocontrast RandomChannelPermutation "
    names += "RandomErasing RandomGrayscale RandomHorizontalFlip RandomIoUCrop RandomPerspective TrivialAugmentWide "
    names += "RandomPhotometricDistort"
    yield from (getattr(v2, name)() for name in names.split())
    yield from (v2.RandomAffine(9, (0.1, 0.1)), v2.RandomCrop(8), v2.RandomResizedCrop(8), v2.RandomRotation(9))
    yield from (v2.GaussianBlur(3), v2.RandomPosterize(3), v2.RandomSolarize(99), v2.RandomAdjustSharpness(2))


@pytest.mark.parametrize("transform", [*random_transforms()], ids=lambda transform: type(transform).__name__)
def test_transforms_of_torchvision_draw_from_torch_alone(transform):
    image = torch.randint(256, (3, 48, 48), dtype=torch.uint8)
    boxes = tv_tensors.BoundingBoxes([[1, 1, 9, 9]], format="XYXY", canvas_size=(48, 48))
    before = random.getstate(), np.random.get_state()[1].tolist()
    for _ in range(20):
        transform(image, boxes) if isinstance(transform, v2.RandomIoUCrop) else transform(image)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert Transformed(InMemory(image[None], torch.zeros(1), image_size=16), [transform]).draws_from[0] == "torch"


def test_all_generators_are_seeded_where_a_transform_may_draw_from_any():
    images = InMemory(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1), image_size=8)
    flip = v2.RandomHorizontalFlip()
    assert {*Transformed(images, [flip]).draws_from} == {"torch"}
    for other in (v2.Lambda(abs), v2.Compose([flip, abs]), v2.RandomApply([abs]), transforms.RandomChoice([flip]), abs):
        assert {*Transformed(images, [flip, other]).draws_from} == {*GENERATORS}
    assert {*Transformed(Noise(split="train", size=1), [flip]).draws_from} == {*GENERATORS}


OWN = ("data=custom", "data.val_fraction=0.25", "data.num_workers=0")


AUGMENTED = (*OWN, "data._target_=tests.data.own_sets.Augmented", "model=mlp", "model.num_inputs=8", "trainer.epochs=1")


def test_a_class_of_ones_own_offers_its_validation_samples_without_augmentation(tmp_path):
    run = train(tmp_path, small(*AUGMENTED))
    drawn, trained = run.trainer.evaluation.loader.batches.dataset, run.trainer.train.batches.dataset
    assert torch.equal(torch.stack([drawn[number][0] for number in range(16)]), drawn.x[drawn.chosen])
    assert not torch.equal(trained[0][0], trained[0][0])


def test_one_that_offers_none_is_refused_and_reading_it_draws_nothing_of_training():
    before = torch.get_rng_state()
    with pytest.raises(
        ConfigurationError, match=r"two readings of a sample differ\. Give the class a method unaugmented"
    ):
        splits(*AUGMENTED, "+data.offers=false")
    splits(*OWN, "data._target_=tests.data.own_sets.Rows")  # does not augment
    assert torch.equal(before, torch.get_rng_state())


def test_a_class_without_validation_samples_needs_them_drawn():
    target = "data._target_=tests.data.own_sets.Augmented"
    with pytest.raises(
        ConfigurationError, match=r'no samples for split="val": KeyError: .val.\. Set data\.val_fraction'
    ):
        build_data(typed("data=custom", target).data)


def test_a_view_of_other_samples_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"WronglyAugmented.unaugmented must be a method that returns the same 64"
    ):
        splits(*OWN, "data._target_=tests.data.own_sets.WronglyAugmented")
