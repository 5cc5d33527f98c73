"""manyheads pack: the samples of a run in the files of others, so that training on them ends with the same bits."""

import json
import os

import pytest

from manyheads.runner.commands.pack import answer, pack_data
from manyheads.runner.data.tar.index import open_index
from manyheads.runner.data.tar.members import Samples, TarContents, Targets
from manyheads.runner.errors import ConfigurationError
from tests.commands.test_json import heard
from tests.data.conftest import save_photos
from tests.in_process import small, train

KEPT = answer.Settings(None, 20_000, None, None, 90)


def pack(source, out, *overrides: str, **settings) -> answer.Packed:
    return pack_data.pack(str(source), overrides, str(out), answer.Settings(**{**vars(KEPT), **settings}))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return save_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def packed(photos, tmp_path_factory):
    """Shards of some 20 kB, and what the command answered."""
    folder = tmp_path_factory.mktemp("packed") / "shards"
    return folder, pack(photos, folder)


def contents(root, split: str) -> list[tuple[bytes, int]]:
    index = open_index(root)
    own = Samples(index, [n for n, each in enumerate(index.about.shards) if each.name.startswith(split)])
    return [*zip(TarContents(own, [index.about.fields.index("jpg")]), Targets(own), strict=True)]


def in_folder(root, split: str) -> list[tuple[bytes, int]]:
    names = sorted(os.listdir(root / split))
    return [
        (path.read_bytes(), number)
        for number, name in enumerate(names)
        for path in sorted((root / split / name).iterdir())
    ]


def test_files_classes_and_splits_are_kept(photos, packed):
    folder, found = packed
    for split in ("train", "val"):
        assert contents(folder, split) == in_folder(photos, split)
    assert found.splits == {"train": 15, "val": 9}
    assert found.shards == len([*folder.glob("*.tar")]) > 3
    assert all(path.stat().st_size < 25_000 for path in folder.glob("*.tar"))
    assert (folder / "classnames.txt").read_text().split() == ["cat", "coffee", "person"]
    assert open_index(folder).about.checked == "headers and contents"


def test_training_on_them_ends_with_the_bits_of_the_folder(photos, packed, tmp_path):
    words = ("data.image_size=24", "data.batch_size=4", "data.num_workers=0", "trainer.epochs=1")
    one = train(tmp_path / "one", small("data=imagefolder", f"data.root={photos}", *words))
    other = train(tmp_path / "other", small("data=tar", f"data.root={packed[0]}", *words))
    assert other.folder.read_result()["weights_sha256"] == one.folder.read_result()["weights_sha256"]
    drawn = ("data.val_fraction=0.3", "seed=7")
    one = train(tmp_path / "drawn", small("data=imagefolder", f"data.root={photos}", *words, *drawn))
    other = train(tmp_path / "drawn_other", small("data=tar", f"data.root={packed[0]}", *words, *drawn))
    assert other.folder.read_result()["weights_sha256"] == one.folder.read_result()["weights_sha256"]


@pytest.mark.needs("webdataset")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
def test_webdataset_reads_them(photos, packed):
    import webdataset

    files = sorted(str(path) for path in packed[0].glob("train-*.tar"))
    found = [*webdataset.WebDataset(files, shardshuffle=False, empty_check=False)]
    assert [(each["jpg"], int(each["cls"])) for each in found] == in_folder(photos, "train")
    decoded = [*webdataset.WebDataset(files, shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls")]
    assert [image.shape for image, _ in decoded] == [(80, 100, 3)] * 15
    assert [number for _, number in decoded] == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.needs("webdataset")
def test_what_webdataset_writes_is_read(tmp_path, monkeypatch):
    import webdataset

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shards").mkdir()
    with webdataset.TarWriter(str(tmp_path / "shards" / "train.tar")) as writer:
        for number in range(4):
            writer.write({"__key__": f"deep/{number}", "jpg": bytes([number]), "cls": number, "json": {"n": number}})
    assert contents(tmp_path / "shards", "train") == [(bytes([number]), number) for number in range(4)]
    assert {*open_index(tmp_path / "shards").about.fields} == {"jpg", "cls", "json"}


def test_the_same_photos_are_the_same_bytes(photos, packed, tmp_path):
    pack(photos, tmp_path / "again")
    for path in packed[0].glob("*.tar"):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_they_can_be_packed_again_in_an_order_that_is_drawn(packed, tmp_path):
    pack("data=tar", tmp_path / "drawn", f"data.root={packed[0]}", shuffle=3)
    before, after = (contents(root, "train") for root in (packed[0], tmp_path / "drawn"))
    assert sorted(before) == sorted(after) != after
    assert contents(tmp_path / "drawn", "val") == contents(packed[0], "val")


def test_images_are_resized_only_if_asked_and_the_settings_recorded(photos, tmp_path):
    from manyheads.runner.data.rank.photos import Picture

    found = pack(photos, tmp_path / "small", resize=40, quality=80)
    assert found.resized == 24
    sizes = {(Picture(each).height, Picture(each).width) for each, _ in contents(tmp_path / "small", "train")}
    assert sizes == {(40, 50)}
    about = json.loads((tmp_path / "small" / "packed.json").read_text())
    assert (about["settings"]["resize"], about["settings"]["quality"], about["splits"]["val"]) == (40, 80, 9)
    assert pack(photos, tmp_path / "large", resize=200).resized == 0


def test_photos_without_validation_samples_are_packed_whole(tmp_path):
    root = save_photos(tmp_path / "photos", val=0)
    for name in ("val/cat", "val/coffee", "val/person", "val"):
        (root / name).rmdir()
    assert pack(root, tmp_path / "shards").splits == {"train": 15}


def test_what_cannot_be_packed_leaves_nothing(photos, packed, tmp_path):
    with pytest.raises(ConfigurationError, match=r"shards=.*shards already exists"):
        pack(photos, packed[0])
    with pytest.raises(ConfigurationError, match="data=digits can't be packed. Allowed: images in files"):
        pack("data=digits", tmp_path / "new")
    with pytest.raises(ConfigurationError, match="source=nowhere: there is no such file or folder"):
        pack("nowhere", tmp_path / "new")
    root = save_photos(tmp_path / "photos")
    (root / "train" / "cat" / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(ConfigurationError, match=r"--resize 40: 00000002_2.jpg cannot be decoded"):
        pack(root, tmp_path / "new", resize=40)
    assert [each.name for each in tmp_path.iterdir()] == ["photos"]


def test_programs_see_how_far_it_is(photos, tmp_path):
    reply, events = heard("pack", str(photos), "shards", cwd=tmp_path)
    assert reply["result"]["splits"] == {"train": 15, "val": 9}
    assert [*dict.fromkeys(each["what"] for each in events)] == ["packing"]
    assert max(each["done"] for each in events if each["what"] == "packing") == 24
    reply, events = heard("index", "shards", cwd=tmp_path)
    assert (reply["result"]["samples"], reply["result"]["fields"]) == (24, ["jpg", "cls"])
    assert {each["what"] for each in events} == {"indexing shards"}
