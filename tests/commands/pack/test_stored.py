"""manyheads pack to object storage: the same files as in a folder, the index last, or nothing."""

import re

import pytest

from manyheads.runner.commands.pack import answer, pack_data
from manyheads.runner.data.shards.index import NAME
from manyheads.runner.errors import ConfigurationError
from tests.data.conftest import save_photos
from tests.in_process import small, train
from tests.object_storage import UNAVAILABLE, lie

pytestmark = pytest.mark.needs("obstore", "moto")


def pack(source, shards, to: str | None = None, *overrides: str) -> answer.Packed:
    return pack_data.pack(str(source), overrides, str(shards), answer.Settings(to, 20_000, None, None, 90))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return save_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"text number {number} of thirty, about nothing. " * 9)
    return tmp_path / "texts"


@pytest.mark.parametrize("to", ["tar", "tokens"])
def test_the_files_are_those_of_a_folder_and_the_index_is_stored_last(s3, photos, texts, tmp_path, to):
    source = photos if to == "tar" else texts
    address = f"s3://bucket/{tmp_path.name}"
    there, here = (pack(source, place, to) for place in (address, tmp_path / "folder"))
    for path in (tmp_path / "folder").iterdir():
        assert s3.get(f"{tmp_path.name}/{path.name}") == path.read_bytes(), path.name
    assert len(s3.names(tmp_path.name)) == len([*(tmp_path / "folder").iterdir()])
    stored = [each.path for each in s3.asked if each.method == "PUT"]
    assert stored[-1].endswith(NAME)
    assert sum(each.endswith(NAME) for each in stored) == 1
    assert (there.folder, there.kind, there.bytes) == (address, to, here.bytes)
    assert there.train == here.train.replace(str(tmp_path / "folder"), address)


def test_training_on_them_ends_with_the_bits_of_the_folder(s3, photos, tmp_path):
    address = f"s3://bucket/{tmp_path.name}"
    pack(photos, address)
    words = ("data.image_size=24", "data.batch_size=4", "data.num_workers=0", "trainer.epochs=1")
    one = train(tmp_path / "one", small("data=imagefolder", f"data.root={photos}", *words))
    other = train(tmp_path / "other", small("data=tar", f"data.root={address}", *words))
    assert other.folder.read_result()["weights_sha256"] == one.folder.read_result()["weights_sha256"]


@pytest.mark.parametrize(
    ("fault", "message"), [(lie, "other content was read back than was stored"), (403, "403|allow")]
)
def test_what_cannot_be_stored_leaves_nothing(s3, photos, tmp_path, fault, message):
    s3.hits = lambda asked: "val-000000.tar" in asked.path and asked.method in ("GET", "PUT")
    with s3.failing(fault), pytest.raises(ConfigurationError, match=message) as error:
        pack(photos, f"s3://bucket/{tmp_path.name}")
    assert "val-000000.tar" in str(error.value)
    assert str(error.value).startswith("shards=s3://bucket/")
    assert f"127.0.0.1:{s3.port}" not in str(error.value)
    assert s3.names(tmp_path.name) == []


def test_a_fault_that_passes_changes_nothing(s3, photos, tmp_path):
    s3.hits = lambda asked: "val-000000.tar" in asked.path
    with s3.failing(UNAVAILABLE, times=2):
        pack(photos, f"s3://bucket/{tmp_path.name}/a")
    with s3.failing(lie, times=1):
        pack(photos, f"s3://bucket/{tmp_path.name}/b")
    assert s3.get(f"{tmp_path.name}/a/val-000000.tar") == s3.get(f"{tmp_path.name}/b/val-000000.tar")


def test_a_place_with_objects_is_refused(s3, photos, tmp_path):
    s3.put(f"{tmp_path.name}/mine", b"x")
    message = re.escape(f"shards=s3://bucket/{tmp_path.name} already has objects, such as mine. Name a new one.")
    with pytest.raises(ConfigurationError, match=message):
        pack(photos, f"s3://bucket/{tmp_path.name}")
    assert s3.names(tmp_path.name) == [f"{tmp_path.name}/mine"]
