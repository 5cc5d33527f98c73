"""Tar shards in object storage: what only they have. All else: tests/data/shards/test_stored.py."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from manyheads.runner.commands.index import own_reading, write_index
from manyheads.runner.data.indexing import index_stored
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.shards.index import NAME, save_index
from manyheads.runner.data.shards.stored import StoredShards
from manyheads.runner.data.tar.index import open_index
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.objects import Address
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import RUN, execute
from tests.data.shards.kinds import KINDS, written
from tests.data.tar.conftest import samples, write_tar
from tests.in_process import typed

pytestmark = pytest.mark.needs("obstore", "moto")


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    """Shards of 2 x 6 training and 4 validation photos, with their index."""
    return written("tar", tmp_path_factory.mktemp("packed") / "photos")


@pytest.fixture
def root(s3, packed, tmp_path) -> str:
    return s3.copy(packed, tmp_path.name)


def words(root, *more: str, workers: int = 0) -> list[str]:
    return [*KINDS["tar"].words, f"data.root={root}", f"data.num_workers={workers}", "data.retry_for=5s", *more]


def test_an_index_without_checksums_of_contents_is_refused(s3, packed, root, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(packed, copy)
    write_index(copy, contents=False)
    s3.put(f"{tmp_path.name}/{NAME}", (copy / NAME).read_bytes())
    with pytest.raises(ConfigurationError, match="has no checksums of contents"):
        typed(*words(root))


def test_an_index_whose_places_are_false_reads_nothing_else(s3, packed, tmp_path):
    """It may have been sent: its digest is right, and its offsets lead outside the part, or the shard."""
    copy = tmp_path / "copy"
    shutil.copytree(packed, copy)
    index = open_index(copy)
    entries = np.array(index.entries)
    entries["offset"][1, 0] = 10**12
    save_index(type(index)(copy, index.about, entries, index.targets), copy.resolve() / NAME)
    root = s3.copy(copy, tmp_path.name)
    option = typed(*words(root)).data
    found = build_split(build_data(option), "train", option)
    with pytest.raises(ConfigurationError, match=r"train-0.tar (is not what|has changed)"):
        found[1]


def test_text_fields_and_chosen_samples_come_from_there_too(s3, tmp_path):
    shards = tmp_path / "texts"
    write_tar(shards / "train.tar", samples(0, 9))
    write_index(shards, contents=True)
    root = s3.copy(shards, tmp_path.name)
    about = [each for each in words(root) if "image_size" not in each]
    option = typed(*about, "data.val_fraction=0.34", "data.fields=[txt,cls]").data
    data = build_data(option)
    found = {split: build_split(data, split, option) for split in ("train", "val")}
    assert sorted(each for split in found.values() for each in map(tuple, split)) == [
        (f"text {number}", number % 3) for number in range(9)
    ]
    found["val"].read_ahead.fetch(np.arange(3))


@pytest.mark.tail
@pytest.mark.processes
def test_several_ranks_take_each_sample_once(root, s3, packed, tmp_path):
    more = ("parallel=ddp", "launcher.nproc_per_node=2", "precision=fp64", "model.width=2", "trainer.epochs=2")
    found = []
    for name, place in (("s3", root), ("folder", packed)):
        words_of = [*words(place, *more, workers=1), "trainer.device=cpu", f"hydra.run.dir={name}"]
        done = execute(sys.executable, str(RUN), *words_of, cwd=tmp_path)
        assert done.code == 0, done.err
        found.append(RunFolder(tmp_path / name).read_result()["weights_sha256"])
    assert found[0] == found[1]
    audited = execute(sys.executable, "-m", "manyheads.runner", "audit", "s3", cwd=tmp_path)
    assert audited.code in (0, 3), audited.err  # crops of one photo may be equal, in both splits
    assert "each epoch took each of its samples exactly once" in audited.out


def test_index_of_an_address_names_what_is_wrong(s3, tmp_path):
    s3.put(f"{tmp_path.name}/train.tar", b"no tar at all" * 100)
    address = Address(f"s3://bucket/{tmp_path.name}")
    said = r"the shard train.tar: it is not a tar archive"
    with StoredShards(address, own_reading()) as shards, pytest.raises(ConfigurationError, match=said):
        index_stored(shards, lambda: None)
    assert s3.names(tmp_path.name) == [f"{tmp_path.name}/train.tar"]
