"""data=hf: images and texts from a local folder, by what their columns say."""

import csv
import json
import re

import numpy as np
import PIL.Image
import pytest
import torch

from manyheads.runner.data.links import boundary
from manyheads.runner.data.rank.splits import as_dataset
from manyheads.runner.data.samples import CorruptSample, ImageFiles
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from tests import in_process
from tests.data.conftest import crops
from tests.in_process import attempt, opened, rows, small, train

pytestmark = pytest.mark.needs("datasets")
WORDS = {0: "cold snow and ice", 1: "warm sun and sand"}


@pytest.fixture(autouse=True, scope="module")
def _imported():
    """Here, since it takes a second, and one alone of xdist's workers runs this file."""
    global datasets, DataFiles, read
    import datasets

    from manyheads.runner.data.hf_contents import DataFiles, read


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Ten training and four test photos of two classes, as save_to_disk leaves them."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "coffee"])})

    def made(count: int, first: int):
        pictures = [crop for name in ("cat", "coffee") for crop in crops(name, count, first=first)]
        return datasets.Dataset.from_dict({"image": pictures, "label": [0] * count + [1] * count}, features=features)

    path = tmp_path_factory.mktemp("images") / "saved"
    datasets.DatasetDict({"train": made(5, 0), "test": made(2, 5)}).save_to_disk(path)
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """CSV files of sentences with a word for their class, which the library puts into a cache of the test's."""
    path = tmp_path_factory.mktemp("texts")
    for split, count in (("train", 32), ("validation", 8)):
        with open(path / f"{split}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["id", "text", "label"])
            table.writerows((number, f"{number} {WORDS[number % 2]}", "cw"[number % 2]) for number in range(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield path


def given(path, *more: str) -> tuple[str, ...]:
    return ("data=hf", f"data.root={path}", "data.num_workers=0", "trainer.epochs=1", *more)


def of_images(path, *more: str) -> tuple[str, ...]:
    return (*given(path, "data.image_size=24", "data.batch_size=4"), *more)


def test_images_are_the_photos_of_a_folder_of_the_same(tmp_path, images):
    folder = tmp_path / "photos"
    for split, count, first in (("train", 5, 0), ("val", 2, 5)):
        for name in ("cat", "coffee"):
            (folder / split / name).mkdir(parents=True)
            for number, crop in enumerate(crops(name, count, first=first)):
                crop.save(folder / split / name / f"{number}.png")
    same = ("data=imagefolder", f"data.root={folder}", "data.image_size=24", "data.batch_size=4", "data.num_workers=0")
    one = train(tmp_path / "one", small(*same, "trainer.epochs=1"))
    other = train(tmp_path / "other", small(*of_images(images)))
    sha = one.folder.read_result()["weights_sha256"]
    assert other.folder.read_result()["weights_sha256"] == sha
    assert rows(other.folder.epochs)[-1]["val_samples"] == "4"
    assert other.trainer.evaluation.loader.batches.dataset.classes == ["cat", "coffee"]


def test_validation_images_may_be_drawn_and_those_of_their_own_test(tmp_path, images):
    drawn = ("data.val_fraction=0.3", "trainer.test=true", "trainer.resize_from=12", "trainer.resize_end=1")
    run = train(tmp_path, small(*of_images(images, *drawn, "data.test_split=test")))
    assert rows(run.folder.epochs)[-1]["val_samples"] == "3"
    assert run.folder.read_result()["test"]["test_samples"] == 4


@pytest.mark.needs("transformers")
def test_texts_with_classes_are_what_models_of_transformers_take(tmp_path, texts):
    sizes = ("vocab_size=256", "hidden_size=16", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=16")
    model = (
        *("model=custom", "model._target_=transformers.BertForSequenceClassification"),
        *("+model.config._target_=transformers.BertConfig", *(f"+model.config.{each}" for each in sizes)),
        *("task=own_loss", "task.loss_over=samples", "optimizer=adamw", "optimizer.lr=0.01"),
    )
    run = train(tmp_path, small(*given(texts, *model, "data.max_length=24", "data.batch_size=8", "trainer.epochs=12")))
    batch = run.trainer.train.example().content
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        **dict.fromkeys(("input_ids", "attention_mask"), (8, 24)),
        "labels": (8,),
    }
    assert run.trainer.train.batches.dataset.classes == ["c", "w"]
    assert float(rows(run.folder.epochs)[-1]["val_acc1"]) == 100


def test_text_without_classes_is_blocks_of_tokens(tmp_path, texts):
    model = ("task=language_model", "model=gpt", "model.width=24", "data.label_column=none", "data.max_length=16")
    with opened(tmp_path, small(*given(texts, *model, "data.batch_size=4"))) as trainer:
        tokens, labels = next(trainer.evaluation.loader.epoch(0)).content
        said = "\0".join(f"{number} {WORDS[number % 2]}" for number in range(8)) + "\0"
        assert bytes(tokens[0].tolist()).decode() == said[:16]
        assert torch.equal(tokens[0, 1:], labels[0, :-1])
        assert trainer.train.samples == (32 * 20 + 22 - 1) // 16


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("data.root=/nowhere",), "data.root=/nowhere: there is no such folder."),
        (("data.hub=a/b",), "data=hf needs exactly one of them."),
        (
            ("data.val_split=dev",),
            "data.val_split=dev: the data set has train, test. Set it to one of them, or",
        ),
        (
            ("data.label_column=kind",),
            "data.label_column=kind: no column of classes found. Allowed: label, none for text without classes.",
        ),
        (
            ("data.input_column=picture",),
            "data.input_column=picture: no column of images or texts found. Allowed: image.",
        ),
        (("data.label_column=none",), "data.label_column=none: images need classes."),
    ],
)
def test_what_is_not_there_is_named(tmp_path, images, overrides, text):
    kept = [each for each in of_images(images) if each.partition("=")[0] != overrides[0].partition("=")[0]]
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        attempt(tmp_path, small(*kept, *overrides))


def test_a_column_of_audio_is_neither_a_class_nor_an_input(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "clip": datasets.Audio(decode=False), "label": datasets.Value("int64")}
    )
    rows = {"text": ["a", "b"], "clip": [None] * 2, "label": [0, 1]}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)}).save_to_disk(tmp_path / "data")
    for key, what in (("label", "classes"), ("input", "images or texts")):
        message = f"data.{key}_column=clip: no column of {what} found. It holds Audio. Allowed: text"
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            attempt(tmp_path / "run", small(*given(tmp_path / "data", f"data.{key}_column=clip")))


def test_a_folder_without_data_and_a_hub_out_of_reach_are_told_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="empty cannot be read"):
        attempt(tmp_path / "run", small(*of_images(tmp_path / "empty")))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    elsewhere = [each for each in of_images("") if "root" not in each]
    with pytest.raises(ConfigurationError, match=r"data.hub=nobody/nothing cannot be read .* Fetch it where there is"):
        attempt(tmp_path / "other", small(*elsewhere, "data.hub=nobody/nothing"))


def test_a_picture_that_cannot_be_read_is_a_corrupt_sample(tmp_path, images):
    saved = datasets.load_from_disk(str(images))
    spoilt = saved["train"].cast_column("image", datasets.Image(decode=False)).to_dict()
    spoilt["image"][3]["bytes"] = b"no picture"
    whole = datasets.Dataset.from_dict(spoilt, features=saved["train"].features)
    datasets.DatasetDict({"train": whole, "test": saved["test"]}).save_to_disk(tmp_path / "spoilt")
    run = attempt(tmp_path / "run", small(*of_images(tmp_path / "spoilt", "data.drop_last=false")))
    with pytest.raises(ConfigurationError, match="sample 3 cannot be read"):
        run.train(seed=1, state=None)


def test_words_for_classes_are_numbered_in_their_order(texts):
    from manyheads.runner.data.hf_contents import _classes, _numbers, read

    splits = read(root=str(texts), hub=None, subset=None, revision=None, download=False)
    classes = _classes(splits["train"], "label")
    assert classes == ["c", "w"]
    assert np.array_equal(_numbers(splits["validation"], "label", classes), [0, 1] * 4)


class TestASentFolder:
    """Whose metadata, links and rows name the user's own files."""

    @pytest.fixture
    def secret(self, tmp_path):
        (tmp_path / "secret").write_text("key\nVERYSECRET\n")
        return tmp_path / "secret"

    @pytest.fixture
    def sent(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        (tmp_path / "sent").mkdir()
        return tmp_path / "sent"

    def rows(self, folder):
        return read(root=str(folder), hub=None, subset=None, revision=None, download=False)

    def test_its_readme_chooses_neither_files_nor_how_they_are_read(self, sent):
        (sent / "train.csv").write_text("text,label\na,b\n")
        (sent / "other.csv").write_text("text,label\nc,d\n")
        (sent / "README.md").write_text(
            "---\nconfigs:\n- config_name: default\n  sep: '='\n  data_files:\n"
            "  - {split: train, path: other.csv}\n  - {split: test, path: http://127.0.0.1:9/x.csv}\n---\n"
        )
        assert {name: list(rows) for name, rows in self.rows(sent).items()} == {"train": [{"text": "a", "label": "b"}]}

    def test_a_link_out_of_it_is_refused_unless_the_folder_is_the_users_own(self, sent, secret):
        (sent / "train.csv").symlink_to(secret)
        with pytest.raises(ConfigurationError, match=r"train.csv points outside .* run once: .* trust"):
            self.rows(sent)
        seal.trust(sent, None)
        assert list(self.rows(sent)["train"]) == [{"key": "VERYSECRET"}]

    @pytest.mark.parametrize("key", ["_data_files", "_indices_data_files"])
    def test_what_save_to_disk_wrote_names_files_beside_it(self, sent, key):
        datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(sent)
        state = json.loads((sent / "state.json").read_text())
        (sent / "state.json").write_text(json.dumps(state | {key: [{"filename": "../other.arrow"}]}))
        with pytest.raises(ConfigurationError, match="names of files beside it"):
            self.rows(sent)

    def test_rows_name_images_in_it_only(self, sent, tmp_path):
        whole = tmp_path / "mine.png"
        PIL.Image.new("RGB", (8, 8)).save(whole)
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a"])})
        rows = datasets.Dataset.from_dict({"image": [{"path": str(whole), "bytes": None}], "label": [0]}, features)
        with pytest.raises(CorruptSample, match=r"mine.png points outside"):
            self.photos(rows, sent)[0]
        whole.rename(sent / "mine.png")
        rows = datasets.Dataset.from_dict({"image": [{"path": "mine.png", "bytes": None}], "label": [0]}, features)
        assert self.photos(rows, sent)[0][0].shape == (3, 8, 8)

    def photos(self, rows, folder):
        rows = rows.cast_column("image", datasets.Image(decode=False))
        files = DataFiles(rows, "image", str(folder))
        return as_dataset(ImageFiles(files, [0], 8, train=False, within=boundary(folder)))

    def test_a_folder_here_is_not_taken_for_a_data_set_on_the_hub(self, sent, monkeypatch):
        monkeypatch.chdir(sent.parent)
        with pytest.raises(ConfigurationError, match="a folder of this name exists here"):
            in_process.config("data=hf", "data.hub=sent")


def test_numbers_to_predict_are_no_classes():
    from manyheads.runner.data.hf_contents import _classes

    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "price": [0.0, 1.0, 1.25], "stars": [0.0, 1.0, 0.0]})
    assert _classes(rows, "stars") == ["0.0", "1.0"]
    with pytest.raises(ConfigurationError, match=r"label_column=price holds numbers such as 1\.25.*task=regression"):
        _classes(rows, "price")
