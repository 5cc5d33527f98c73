"""``manyheads.load``: the model, its input's pixels and its predictions are those of the run itself."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import manyheads
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.loop.build_observers import ModelDescription
from manyheads.runner.run.model_description import Description, Steps, read
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.task.rank.classification import Classification
from tests.conftest import ROOT
from tests.in_process import small, train, weights
from tests.serve import nets


def evaluated(run) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's inputs as the run's own evaluation has them, and the class numbers."""
    batches = list(run.trainer.evaluation.loader.epoch(0))
    return torch.cat([batch.inputs for batch in batches]), torch.cat([batch.content[1] for batch in batches])


@pytest.fixture(scope="module")
def of_photos(photo_run):
    return manyheads.load(photo_run.folder.path)


@pytest.fixture(scope="module")
def of_digits(digits_run):
    return manyheads.load(digits_run.folder.path)


class TestTheModel:
    def test_has_the_run_s_weights_ready_for_use(self, photo_run, of_photos):
        trained = weights(photo_run.trainer)
        loaded = of_photos.model.state_dict()
        assert all(torch.equal(loaded[name], trained[name]) for name in trained)
        assert not of_photos.model.training
        assert {p.dtype for p in of_photos.model.parameters()} == {torch.float32}

    def test_says_what_is_known_of_it(self, photo_run, of_photos, of_digits):
        assert of_photos.classes == ("cat", "coffee", "person")
        assert of_digits.classes == tuple("0123456789")
        assert of_photos.config == photo_run.folder.read_config()
        assert repr(of_photos).endswith(f" with the best weights of {photo_run.folder.path}>")
        assert of_photos.metrics == photo_run.folder.read_result()["best"]

    def test_best_or_last_weights(self, tmp_path, photo_run):
        shutil.copytree(photo_run.folder.path, tmp_path / "run")
        folder = RunFolder(tmp_path / "run")
        assert manyheads.load(folder.path).which == "best"
        last = manyheads.load(folder.path, which="last")
        assert (last.which, last.metrics) == ("last", folder.read_result()["metrics"])
        folder.best_checkpoint.unlink()
        assert manyheads.load(folder.path).which == "last"
        with pytest.raises(ConfigurationError, match=r"has no best weights: .*best\.pt does not exist"):
            manyheads.load(folder.path, which="best")
        with pytest.raises(ConfigurationError, match="worst: there are no such weights. Allowed: best, last"):
            manyheads.load(folder.path, which="worst")

    def test_needs_no_data(self, tmp_path, photos):
        shutil.copytree(photos, tmp_path / "photos")
        overrides = ("data=imagefolder", "data.image_size=24", "data.num_workers=0", "trainer.max_steps=1")
        run = train(tmp_path / "run", small(f"data.root={tmp_path / 'photos'}", *overrides))
        shutil.rmtree(tmp_path / "photos")
        (found,) = manyheads.load(run.folder.path).predict([photos / "val" / "cat" / "0.jpg"])
        assert found.label in ("cat", "coffee", "person")

    def test_in_fp64_and_after_it(self, tmp_path):
        run = train(tmp_path, small("precision=fp64", "trainer.max_steps=1"))
        trained = weights(run.trainer)
        for name, loaded in manyheads.load(tmp_path).model.state_dict().items():
            assert loaded.dtype == torch.float32
            assert torch.equal(loaded, trained[name].float())

    def test_no_run_and_no_weights(self, tmp_path):
        with pytest.raises(ConfigurationError, match=r"holds no run: run\.yaml does not exist"):
            manyheads.load(tmp_path)
        run = train(tmp_path / "run", small("trainer.max_steps=1", "checkpoint.every=0"))
        with pytest.raises(ConfigurationError, match=r"has no weights: .*last\.pt does not exist.*checkpoint\.every"):
            manyheads.load(run.folder.path)


class TestTheInput:
    def test_of_a_photo_is_the_evaluation_s_to_the_bit(self, photo_run, of_photos):
        inputs, _ = evaluated(photo_run)
        paths = list(photo_run.trainer.evaluation.loader.batches.dataset.paths)
        assert torch.equal(of_photos.preprocess.batch(paths), inputs)

    def test_of_a_decoded_image_too(self, tmp_path, photos):
        """A PNG is decoded alike by whoever does it."""
        for split in ("train", "val"):
            for path in sorted((photos / split).glob("*/*.jpg")):
                target = tmp_path / "png" / split / path.parent.name / f"{path.stem}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                Image.open(path).save(target)
        overrides = ("data=imagefolder", "data.image_size=24", "data.num_workers=0", "trainer.max_steps=1")
        run = train(tmp_path / "run", small(f"data.root={tmp_path / 'png'}", *overrides))
        inputs, _ = evaluated(run)
        preprocess = manyheads.load(run.folder.path).preprocess
        for path, expected in zip(run.trainer.evaluation.loader.batches.dataset.paths, inputs, strict=True):
            image = Image.open(path)
            array = np.array(image)
            for each in (path, image, array, torch.from_numpy(array).permute(2, 0, 1)):
                assert torch.equal(preprocess(each), expected)

    def test_of_images_in_memory(self, digits_run, of_digits):
        from manyheads.runner.data.digits import Digits

        inputs, _ = evaluated(digits_run)
        images = Digits(image_size=16).split(train=False).images
        for each in (list(images[:, 0]), list(images), [Image.fromarray(image[0]) for image in images]):
            each = [torch.from_numpy(image) if getattr(image, "ndim", 0) == 3 else image for image in each]
            assert torch.equal(of_digits.preprocess.batch(each), inputs)

    def test_what_is_no_image_is_said(self, of_photos):
        with pytest.raises(ConfigurationError, match=r"an array of float64 \(4,\) is not an image"):
            of_photos.preprocess(np.zeros(4))
        with pytest.raises(ConfigurationError, match="a dict is not an image"):
            of_photos.preprocess({})


class TestPredictions:
    def test_are_those_that_the_run_measured(self, digits_run, of_digits):
        inputs, targets = evaluated(digits_run)
        found = of_digits.predict(inputs)
        correct = sum(each.label == str(target) for each, target in zip(found, targets.tolist(), strict=True))
        assert 100 * correct / len(targets) == pytest.approx(of_digits.metrics["val_acc1"])

    def test_have_a_label_a_probability_and_the_likeliest_five(self, of_photos, of_digits, photos):
        path = photos / "val" / "cat" / "0.jpg"
        one, (other,) = of_photos.predict(path), of_photos.predict([str(path)])
        assert one == other
        assert len(one.top) == 3
        assert sum(share for _, share in one.top) == pytest.approx(1)
        assert one.top[0] == (one.label, one.probability) == (of_photos.classes[one.index], max(p for _, p in one.top))
        assert len(of_digits.predict(np.zeros((8, 8), np.uint8)).top) == 5

    def test_of_a_ready_batch(self, photo_run, of_photos):
        inputs, _ = evaluated(photo_run)
        paths = list(photo_run.trainer.evaluation.loader.batches.dataset.paths)
        samples = torch.stack([of_photos.preprocess.sample(path) for path in paths])
        assert of_photos.predict(inputs) == of_photos.predict(samples) == of_photos.predict(paths)


class TestACustomRun:
    @staticmethod
    def run(tmp_path, name: str):
        data = ("data=custom", f"data._target_=tests.serve.nets.{name}", "data.num_workers=0", "data.batch_size=8")
        model = ("model=custom", "model._target_=tests.serve.nets.Net", "+model.width=5")
        return train(tmp_path, small(*data, *model, "trainer.max_steps=1"))

    def test_that_declares_everything(self, tmp_path):
        run = self.run(tmp_path, "Telling")
        trained = manyheads.load(tmp_path)
        images = nets.Telling("val").images
        torch.testing.assert_close(trained.preprocess.batch(list(images)), evaluated(run)[0])
        assert trained.predict(images[0]).label in ("ant", "bee", "cat")

    def test_that_declares_nothing(self, tmp_path):
        run = self.run(tmp_path, "Silent")
        trained, inputs = manyheads.load(tmp_path), evaluated(run)[0]
        assert (trained.classes, trained.description.shape, trained.description.dtype) == (None, (3, 8, 8), "float32")
        assert trained.predict(inputs)[0].label in ("0", "1", "2")
        assert trained.predict(list(inputs)) == trained.predict(inputs)
        with pytest.raises(ConfigurationError, match="does not declare how an image becomes a sample.*3x8x8"):
            trained.predict(Image.new("RGB", (8, 8)))

    def test_that_leaves_the_normalization_to_the_run(self, tmp_path):
        run = self.run(tmp_path, "Bytes")
        images = torch.from_numpy(nets.Bytes("val").images).permute(0, 3, 1, 2)
        assert torch.equal(manyheads.load(tmp_path).preprocess.batch(list(images)), evaluated(run)[0])


def test_a_model_without_classes_predicts_none(of_photos):
    assert Classification(loss=torch.nn.BCEWithLogitsLoss(), reduction="auto").outputs is None
    trained = replace(of_photos, description=replace(of_photos.description, outputs=None))
    with pytest.raises(ConfigurationError, match="returns no class logits"):
        trained.predict(np.zeros((8, 8, 3), np.uint8))
    assert trained.outputs(torch.zeros(2, 3, 24, 24)).shape == (2, 3)


def test_without_its_description_a_run_is_refused(tmp_path, digits_run):
    folder = shutil.copytree(digits_run.folder.path, tmp_path / "digits")
    (folder / "model.json").unlink()
    with pytest.raises(manyheads.ConfigurationError, match=r"has no model\.json\. Restore it from a copy\."):
        manyheads.load(folder)


def test_a_run_of_another_format_is_refused_with_its_commit():
    with pytest.raises(manyheads.ConfigurationError, match="Check out commit 46a818f"):
        manyheads.load(ROOT / "tests" / "run" / "recorded" / "completed")


def test_import_manyheads_imports_no_torch():
    code = "import sys, manyheads; assert not {'torch', 'hydra', 'numpy'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / ".names")})
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        _ = manyheads.laod


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_classes", -1),
        ("num_classes", True),
        ("classes", "cat"),
        ("shape", [3, 10**9, 4]),
        ("shape", [64, 2**11, 2**11]),
        ("preprocess", {"mode": "RGB", "resize": "square", "size": 10**9}),
        ("preprocess", {"run": "rm"}),
        ("mean", ["a"]),
        ("std", [0.0]),
        ("outputs", "anything"),
        ("dtype", "object"),
    ],
)
def test_nonsense_in_model_json_is_refused(tmp_path, key, value):
    folder = RunFolder(tmp_path)
    folder.description.write_text(json.dumps({**Description().to_json(), key: value}))
    with pytest.raises(ConfigurationError, match=f"{key} has another type"):
        read(folder)


def test_large_images_are_predicted_a_few_at_a_time(of_photos):
    large = replace(of_photos.description, preprocess=Steps("RGB", "square", 2**12))
    assert (of_photos.at_once, replace(of_photos, description=large).at_once) == (64, 1)


def test_what_was_written_is_read(photo_run):
    (written,) = [each for each in photo_run.trainer.observers if isinstance(each, ModelDescription)]
    assert read(photo_run.folder) == written.describe()
