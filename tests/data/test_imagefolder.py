"""Folders of real photos, sound and damaged."""

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from manyheads.runner.data.imagefolder import ImageFolder
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.rng import seed_sample
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.samples import CorruptSample
from manyheads.runner.errors import ConfigurationError
from tests.data.conftest import SIDE
from tests.in_process import build_dataset, config, small, train, typed


def check(root: Path) -> None:
    config("data=imagefolder", f"data.root={root}")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("This is not a photo.\n")


def break_png(path: Path) -> None:
    Image.open(path).save(path, format="PNG")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def break_tables(path: Path) -> None:
    """Header and end are sound; only decoding finds that there is no quantisation table."""
    path.write_bytes(path.read_bytes().replace(b"\xff\xdb", b"\xff\xfe"))


DAMAGES = [truncate, empty, text, break_png, break_tables]


def test_classes_are_the_folders_in_order(photos):
    data = ImageFolder(root=str(photos), image_size=SIDE)
    assert (data.classes, data.num_classes) == (["cat", "coffee", "person"], 3)
    training, evaluation = build_dataset(data, train=True), build_dataset(data, train=False)
    assert (len(training), len(evaluation)) == (15, 9)
    assert list(training.targets) == [0] * 5 + [1] * 5 + [2] * 5
    assert [Path(path).name for path in training.paths[:5]] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg"]


def test_what_is_left_out_is_counted_and_named(own_photos, capsys):
    check(own_photos)
    assert capsys.readouterr().err == ""
    train = own_photos / "train"
    (train / "cat" / "old").mkdir()
    shutil.copy(train / "cat" / "0.jpg", train / "cat" / "old" / "0.jfif")
    for name in ("cat/notes.txt", "beside.jpg", ".ipynb_checkpoints/0.jpg", "cat/.ipynb_checkpoints/0.jpg"):
        (train / name).parent.mkdir(exist_ok=True)
        shutil.copy(train / "cat" / "0.jpg", train / name)
    check(own_photos)
    printed = " ".join(capsys.readouterr().err.split())
    names = ".ipynb_checkpoints, beside.jpg, cat/.ipynb_checkpoints, ..."
    assert f"warning: skipped 4 files or folders ({names}) in {train}." in printed
    assert "end in .jpg" in printed
    assert "there are 16." in printed
    data = ImageFolder(root=str(own_photos), image_size=SIDE)
    assert (data.num_classes, len(build_dataset(data, train=True))) == (3, 16)


def test_evaluation_is_the_classic_resize_and_centre_crop(photos):
    evaluation = build_dataset(ImageFolder(root=str(photos), image_size=224), train=False)
    image, target = evaluation[4]
    with Image.open(photos / "val" / "coffee" / "1.jpg") as file:
        expected = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.PILToTensor()])(file.convert("RGB"))
    assert target == 1
    assert image.dtype == torch.uint8
    assert (image.int() - expected.int()).abs().double().mean() < 1  # PIL rounds in between


def test_training_crops_and_mirrors_at_random(photos):
    training = build_dataset(ImageFolder(root=str(photos), image_size=SIDE), train=True)
    seed_sample(1)
    views = [training[0][0] for _ in range(8)]
    assert {view.shape for view in views} == {(3, SIDE, SIDE)}
    assert len({view.numpy().tobytes() for view in views}) == 8
    seed_sample(1)
    assert torch.equal(training[0][0], views[0])


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1"])
def test_images_of_any_mode_have_three_channels(own_photos, mode):
    path = own_photos / "val" / "cat" / ("0.tif" if mode == "CMYK" else "0.png")
    with Image.open(own_photos / "val" / "cat" / "0.jpg") as photo:
        photo.convert(mode).save(path)
    (own_photos / "val" / "cat" / "0.jpg").unlink()
    assert build_dataset(ImageFolder(root=str(own_photos), image_size=SIDE), train=False)[0][0].shape == (3, SIDE, SIDE)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_a_corrupt_sample_with_its_path(own_photos, damage):
    path = own_photos / "train" / "coffee" / "2.jpg"
    damage(path)
    training = build_dataset(ImageFolder(root=str(own_photos), image_size=SIDE), train=True)
    with pytest.raises(CorruptSample) as caught:
        training[7]
    assert caught.value.path == str(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_over_a_damaged_file(own_photos, tmp_path, damage):
    bad = own_photos / "train" / "coffee" / "2.jpg"
    damage(bad)
    shutil.copy(bad, own_photos / "val" / "person" / "1.jpg")
    options = ("data=imagefolder", f"data.root={own_photos}", f"data.image_size={SIDE}", "data.num_workers=0")
    shared = small(*options, "data.batch_size=5", "trainer.epochs=2")
    shared["data"]["on_corrupt"] = "skip"
    result = train(tmp_path / "skip", shared).folder.read_result()
    assert (result["status"], result["steps"], result["samples_seen"]) == ("completed", 6, 30)
    assert result["corrupt_samples"] == 4  # in each of two epochs one of training, one of evaluation
    assert result["metrics"]["val_samples"] == 8

    shared["data"]["on_corrupt"] = "error"
    with pytest.raises(ConfigurationError, match=rf"{bad} cannot be read .*data\.on_corrupt=skip"):
        train(tmp_path / "error", shared)


def test_when_nothing_can_be_read_skipping_ends_too(own_photos, tmp_path):
    for path in own_photos.glob("train/*/*.jpg"):
        text(path)
    options = ("data=imagefolder", f"data.root={own_photos}", f"data.image_size={SIDE}", "data.num_workers=0")
    with pytest.raises(ConfigurationError, match="and neither can any other sample"):
        train(tmp_path / "run", small(*options, "data.batch_size=5", "data.on_corrupt=skip"))


def test_what_the_parent_refuses(own_photos):
    check(own_photos)
    (own_photos / "val" / "cat" / "notes.txt").write_text("no image, no harm")
    check(own_photos)
    for path in own_photos.glob("val/cat/*.jpg"):
        path.unlink()
    with pytest.raises(ConfigurationError, match=rf"the class folder {own_photos}/val/cat holds no image"):
        check(own_photos)
    shutil.rmtree(own_photos / "val" / "cat")
    with pytest.raises(ConfigurationError, match=r"must hold the same class folders, but differ in cat"):
        check(own_photos)
    shutil.rmtree(own_photos / "val")
    with pytest.raises(ConfigurationError, match=rf"{own_photos}/val does not exist.*Set data\.root"):
        check(own_photos)
    (own_photos / "val").mkdir()
    with pytest.raises(ConfigurationError, match=rf"{own_photos}/val holds no class folder"):
        check(own_photos)
    with pytest.raises(ConfigurationError, match=r"data\.root=\S*nowhere: there is no such folder\. Expected: train/"):
        check(own_photos / "nowhere")
    with pytest.raises(ConfigurationError, match=r"data\.root is not set"):
        config("data=imagefolder")


def test_training_and_evaluation_may_have_sizes_of_their_own(photos):
    data = ImageFolder(root=str(photos), image_size=48, train_image_size=32, val_resize=50)
    train, val = (build_dataset(data, train=train) for train in (True, False))
    assert (train[0][0].shape, val[0][0].shape) == ((3, 32, 32), (3, 48, 48))
    assert val.preprocess == {"mode": "RGB", "resize": "shorter_side", "size": 50, "crop": 48}
    with Image.open(val.paths[0]) as file:
        classic = v2.Compose([v2.Resize(50), v2.CenterCrop(48), v2.PILToTensor()])(file.convert("RGB"))
    assert (val[0][0].int() - classic.int()).abs().double().mean() <= 2


def test_classes_without_train_are_divided_by_a_fraction(own_photos):
    root = own_photos / "train"
    data = ("data=imagefolder", f"data.root={root}", f"data.image_size={SIDE}")
    run = typed(*data, "data.val_fraction=0.2")
    built = build_data(run.data)
    sizes = [len(build_split(built, split, run.data)) for split in ("train", "val")]
    assert (built.classes, sizes) == (["cat", "coffee", "person"], [12, 3])
    with pytest.raises(ConfigurationError, match=r"data\.val_fraction=.* no train/, so set data\.val_fraction"):
        typed(*data)
    with pytest.raises(ConfigurationError, match=r"no photos for a test"):
        typed(*data, "data.val_fraction=0.2", "trainer.test=true")


def test_a_csv_file_may_say_the_classes(own_photos, tmp_path):
    (own_photos / "train" / "cat" / "0.jpg").rename(own_photos / "train" / "cat" / "x.jpg")
    names = sorted(path.relative_to(own_photos).as_posix() for path in own_photos.glob("train/*/*.jpg"))
    Image.open(own_photos / names[0]).save(own_photos / "one.gif")
    rows = [f"{name},{'animal' if 'cat' in name else 'other'}" for name in [*names, "one.gif"]]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["file,label", *rows]))
    data = ("data=imagefolder", f"data.root={own_photos}", f"data.labels={labels}", f"data.image_size={SIDE}")
    run = typed(*data, "data.val_fraction=0.25")
    built = build_data(run.data)
    train, val = (build_split(built, split, run.data) for split in ("train", "val"))
    assert (built.classes, len(train), len(val)) == (["animal", "other"], 12, 4)
    assert {*val[0][0].shape} == {3, SIDE}
    with pytest.raises(
        ConfigurationError, match=r"no rows whose column split is val\. Add them, or set data\.val_frac"
    ):
        typed(*data)
    labels.write_text(
        "\n".join(["file,label,split", *(f"{row},{'val' if n % 3 else 'train'}" for n, row in enumerate(rows))])
    )
    built = build_data(typed(*data).data)
    assert [len(build_dataset(built, train=is_train)) for is_train in (True, False)] == [6, 10]
    for text, message in (
        ("file,label\nnone.jpg,a", r"line 2 names none\.jpg, which does not exist"),
        ("file,kind\na.jpg,a", r"has no column label or class"),
        ("file,label", r"has no rows"),
        ("file,label\none.gif,", r"line 2 lacks"),
    ):
        labels.write_text(text)
        with pytest.raises(ConfigurationError, match=message):
            typed(*data, "data.val_fraction=0.2")


def test_a_mistyped_folder_is_answered_by_what_is_beside_it(own_photos):
    with pytest.raises(
        ConfigurationError, match=r"data\.root=\S*/phtos: there is no such folder\. Did you mean photos\?"
    ):
        check(own_photos.parent / "phtos")


def test_the_folder_of_a_class_is_not_a_data_set(own_photos):
    with pytest.raises(
        ConfigurationError, match=r"/cat holds 5 images and no class folders.*data\.root to \S*/train\."
    ):
        check(own_photos / "train" / "cat")


def test_a_single_class_leaves_nothing_to_learn(own_photos):
    (own_photos / "cats").mkdir()
    (own_photos / "train" / "cat").rename(own_photos / "cats" / "inner")
    with pytest.raises(ConfigurationError, match=rf"inner is the only class.*such as {own_photos}\."):
        config("data=imagefolder", f"data.root={own_photos / 'cats'}", "data.val_fraction=0.2")
