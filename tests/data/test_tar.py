"""data=tar: what samples are, by the fields that shards have, and by what the config names."""

import json
import re
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.samples import CorruptSample
from manyheads.runner.errors import ConfigurationError
from tests.data.conftest import crops
from tests.data.tar.conftest import samples, write_tar
from tests.in_process import attempt, opened, small, train, typed

DRAWN = "data.val_fraction=0.25"


def jpg(number: int = 0) -> bytes:
    (photo,) = crops("cat", 1, first=number)
    photo.save(file := BytesIO(), "JPEG")
    return file.getvalue()


def array(values) -> bytes:
    np.save(file := BytesIO(), values)
    return file.getvalue()


def given(root, *more: str) -> tuple[str, ...]:
    return ("data=tar", f"data.root={root}", "data.image_size=24", "data.batch_size=2", "data.num_workers=0", *more)


def dataset(root, *more: str, split: str = "train"):
    from manyheads.runner.data.rank.build_data import build_data

    option = typed(*given(root, *more)).data
    return build_split(build_data(option), split, option)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def rich(tmp_path):
    """Samples of an image, a class, JSON, an array and a text."""
    files = []
    for number in range(8):
        image = ("jpg", jpg(number)) if number % 2 else ("PNG", png())
        parts = {
            image[0]: image[1],
            "cls": str(number % 2).encode(),
            "json": json.dumps({"n": number}).encode(),
            "npy": array(np.full(3, number, np.float32)),
            "pth": b"reads as 7",
        }
        files += [(f"{number}.{field}", content) for field, content in parts.items()]
    write_tar(tmp_path / "rich" / "train.tar", files)
    return tmp_path / "rich"


def png() -> bytes:
    Image.new("RGB", (30, 40), "red").save(file := BytesIO(), "PNG")
    return file.getvalue()


def test_images_of_several_formats_are_samples_with_their_classes(rich):
    found = dataset(rich, DRAWN)
    assert [found[each][1] for each in range(6)] == [0, 1, 0, 1, 0, 1][: len(found)] or len(found) == 6
    assert {tuple(found[each][0].shape) for each in range(6)} == {(3, 24, 24)}
    assert len(dataset(rich, DRAWN, split="val")) == 2


def test_names_of_classes_are_those_beside_the_shards(rich):
    (rich / "classnames.txt").write_text("cold\nwarm\nhot\n")
    assert dataset(rich, DRAWN).classes == ["cold", "warm", "hot"]


class Reads:
    """A user's own decoder."""

    def __call__(self, content: bytes) -> int:
        return int(content.rsplit(b" ")[-1])


def test_fields_are_decoded_by_their_names_and_by_the_users_own_classes(rich):
    decoder = "+data.decoders.pth._target_=tests.data.test_tar.Reads"
    found = dataset(rich, DRAWN, "data.fields=[jpg|png,cls,json,npy,pth]", decoder)
    image, number, about, values, own = found[0]
    assert (image.ndim, number in (0, 1), own) == (3, True, 7)
    assert torch.equal(values, torch.full((3,), float(about["n"])))


def test_a_pickle_is_read_by_nobody_but_a_decoder_that_is_typed(rich):
    with pytest.raises(
        ConfigurationError, match=r"data.fields=pth: reading such a file may run .*\+data.decoders.pth._target_"
    ):
        dataset(rich, DRAWN, "data.fields=[jpg,pth]")


def test_an_array_of_objects_is_not_unpickled(tmp_path):
    evil = array(np.array([{"a": 1}], dtype=object))
    write_tar(tmp_path / "x" / "train.tar", [(f"{n}.{field}", evil) for n in range(4) for field in ("npy",)])
    with pytest.raises(CorruptSample, match="allow_pickle=False"):
        dataset(tmp_path / "x", DRAWN, "data.fields=[npy]")[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.fields=[mp4]",), "data.fields=mp4: no sample has it. Allowed: png, cls, json, npy, pth, jpg."),
        (("data.train_shards=t*.tgz",), "data.train_shards=t*.tgz matches none of 1 shards, such as train.tar"),
        (("data.train_shards='tra{im,in}.tar'",), "the shard traim.tar is missing. Did you mean train.tar?"),
        (("data.val_fraction=null", "data.val_shards=t*.tar"), "data.val_shards=t*.tar: train.tar is among data.train"),
        (("data.val_fraction=null",), "data.val_shards=auto matches none of 1 shards"),
    ],
)
def test_what_is_not_there_is_named(rich, overrides, message):
    kept = [DRAWN] if "null" not in overrides[0] else []
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        typed(*given(rich, *kept, *overrides))


def test_images_without_classes_and_shards_of_neither_are_refused(tmp_path):
    write_tar(tmp_path / "a" / "train.tar", [("1.jpg", jpg()), ("1.cls", b"0"), ("2.jpg", jpg()), ("2.cls", b"cat")])
    with pytest.raises(
        ConfigurationError, match=r"a class number each, in a file .cls, which train.tar: 2 does not have"
    ):
        typed(*given(tmp_path / "a", DRAWN))
    write_tar(tmp_path / "b" / "train.tar", [("1.mp4", b""), ("2.mp4", b"")])
    with pytest.raises(ConfigurationError, match=r"data.fields=auto: there are neither images nor text.* Allowed: mp4"):
        typed(*given(tmp_path / "b", DRAWN))
    with pytest.raises(
        ConfigurationError, match=r"data.fields=mp4: files with this name are not read. .* Allowed: jpg"
    ):
        dataset(tmp_path / "b", DRAWN, "data.fields=[mp4]")


def test_an_image_that_cannot_be_decoded_is_named_by_shard_and_key(tmp_path):
    files = [(f"{n}.{field}", content) for n in range(6) for field, content in (("jpg", jpg()), ("cls", b"1"))]
    files[4] = ("2.jpg", b"no picture")
    write_tar(tmp_path / "x" / "train.tar", files)
    words = small(*given(tmp_path / "x", "data.val_fraction=0.3", "trainer.epochs=1", "data.drop_last=false"))
    with pytest.raises(ConfigurationError, match=r"x/train.tar: 2.jpg cannot be read .*data.on_corrupt=skip"):
        attempt(tmp_path / "run", words).train(seed=1, state=None)


def test_text_is_blocks_of_tokens(tmp_path):
    shards = tmp_path / "shards"
    write_tar(shards / "train.tar", samples(0, 9))
    write_tar(shards / "val.tar", samples(9, 3))
    model = ("task=language_model", "model=gpt", "model.width=24", "data.block_size=8", "data.batch_size=2")
    words = [each for each in given(shards, *model) if not each.startswith("data.image_size")]
    with opened(tmp_path / "run", small(*words)) as trainer:
        tokens, labels = next(trainer.evaluation.loader.epoch(0)).content
        said = "\0".join(f"text {number}" for number in (9, 10, 11)) + "\0"
        assert bytes(tokens[0].tolist()).decode() == said[:8]
        assert torch.equal(tokens[0, 1:], labels[0, :-1])


def test_text_that_is_not_utf8_is_named(tmp_path):
    write_tar(tmp_path / "x" / "train.tar", [("1.txt", b"\xff"), ("2.txt", b"a")])
    write_tar(tmp_path / "x" / "val.tar", samples(1, 9))
    with pytest.raises(ConfigurationError, match=r"train.tar: 1.txt is not UTF-8"):
        dataset(tmp_path / "x")


def test_loader_processes_read_the_same(tmp_path, rich):
    found = []
    for workers in (0, 2):
        words = small(*given(rich, DRAWN, f"data.num_workers={workers}", "trainer.epochs=1"))
        found.append(train(tmp_path / str(workers), words).folder.read_result()["weights_sha256"])
    assert found[0] == found[1]
