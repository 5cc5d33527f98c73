"""Shards in object storage: the weights of the folder, or an error that names shard and range."""

import re
import shutil
import sys
import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from manyheads.runner.__main__ import main
from manyheads.runner.commands.index import own_reading, write_index
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.splits import build_split
from manyheads.runner.data.tar import stored
from manyheads.runner.data.tar.index import NAME, open_index
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import seconds
from manyheads.runner.provenance.fingerprint import fingerprint
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.storage.address import Address
from tests.conftest import RUN, execute
from tests.data.conftest import crops
from tests.data.tar.conftest import samples, write_tar
from tests.in_process import small, train, typed
from tests.object_storage import SECRETS, UNAVAILABLE, cut, lie
from tests.tail import tail

pytestmark = pytest.mark.needs("obstore", "moto")


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    """Shards of 2 x 6 training and 4 validation photos, with their index."""
    root = tmp_path_factory.mktemp("packed") / "photos"
    for shard, first, count in (("train-0", 0, 6), ("train-1", 6, 6), ("val-0", 12, 4)):
        files = []
        for number, photo in enumerate(crops("cat", count, first=first), first):
            photo.save(file := BytesIO(), "JPEG")
            files += [(f"{number:03d}.jpg", file.getvalue()), (f"{number:03d}.cls", str(number % 3).encode())]
        write_tar(root / f"{shard}.tar", files)
    (root / "classnames.txt").write_text("cold\nwarm\nhot\n")
    write_index(root, contents=True)
    return root


@pytest.fixture
def root(s3, packed, tmp_path) -> str:
    return s3.copy(packed, tmp_path.name)


def words(root, *more: str, workers: int = 0) -> list[str]:
    about = ["data=tar", f"data.root={root}", "data.image_size=16", "data.batch_size=4", f"data.num_workers={workers}"]
    return [*about, "data.fetch_mb=0.004", "data.retry_for=5s", *more]


def weights(folder: Path, root, *more: str, workers: int = 0) -> str:
    run = train(folder, small(*words(root, "trainer.epochs=2", *more, workers=workers)))
    return run.folder.read_result()["weights_sha256"]


@pytest.fixture(scope="module")
def from_folder(packed, tmp_path_factory) -> str:
    """The weights of training on the folder."""
    return weights(tmp_path_factory.mktemp("local") / "run", packed)


@pytest.mark.parametrize("workers", [tail(0), 2])
def test_it_trains_as_on_the_folder_and_a_second_run_fetches_nothing(root, s3, from_folder, tmp_path, workers):
    assert weights(tmp_path / "run", root, workers=workers) == from_folder
    fetched = [each for each in s3.asked if each.span and ".tar" in each.path]
    assert len(fetched) == len({*fetched}) >= 8  # parts, each once
    s3.asked.clear()
    assert weights(tmp_path / "again", root, workers=workers) == from_folder
    assert [each for each in s3.asked if each.span and "classnames" not in each.path] == []


@pytest.mark.parametrize("order", [pytest.param("feistel", marks=pytest.mark.tail), "blocks"])
def test_every_order_is_that_of_the_folder(root, packed, tmp_path, order):
    more = (f"data.order={order}", *(["data.order_block=2", "data.order_window=2"] if order == "blocks" else []))
    assert weights(tmp_path / "s3", root, *more, workers=1) == weights(tmp_path / "folder", packed, *more)


@pytest.mark.parametrize("fault", [*(pytest.param(each, marks=pytest.mark.tail) for each in (UNAVAILABLE, cut)), lie])
def test_a_fault_that_passes_changes_nothing(root, s3, from_folder, tmp_path, fault):
    s3.hits = lambda asked: ".tar" in asked.path
    with s3.failing(fault, times=2):
        assert weights(tmp_path / "run", root) == from_folder


def test_a_server_that_is_killed_while_it_trains_is_waited_for(root, s3, from_folder, tmp_path):
    asked = []

    def killed(content: bytes) -> bytes:
        asked.append(content)
        if len(asked) == 3:
            threading.Thread(target=s3.stop).start()
            threading.Timer(1.5, s3.start).start()
        return content

    s3.hits = lambda asked: ".tar" in asked.path
    with s3.failing(killed):
        assert weights(tmp_path / "run", root, "data.read_ahead=0") == from_folder
    assert len(asked) > 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        tail(UNAVAILABLE, r"train-[01].tar: bytes \d+ to \d+: the server answers with status 503, for 1 seconds"),
        pytest.param(
            cut, r"train-[01].tar: bytes \d+ to \d+: answers are cut off, for 1 seconds", marks=pytest.mark.tail
        ),
        (
            lie,
            r"train-[01].tar has changed .*, or is damaged on the way: see .* bytes \d+ to \d+, jpg of sample \d+",
        ),
    ],
)
def test_a_fault_that_stays_names_shard_and_range(root, s3, tmp_path, fault, message):
    s3.hits = lambda asked: ".tar" in asked.path
    with s3.failing(fault), pytest.raises(ConfigurationError, match=message) as error:
        weights(tmp_path / "run", root, "data.retry_for=1s", workers=1)
    assert f"127.0.0.1:{s3.port}" not in str(error.value)


def test_what_is_damaged_on_the_disk_is_fetched_again(root, s3, from_folder, tmp_path):
    assert weights(tmp_path / "run", root) == from_folder
    for path in (tmp_path / "cache" / "manyheads" / "storage").glob("??/*"):
        content = bytearray(path.read_bytes())
        content[700:] = bytes(len(content) - 700)
        path.write_bytes(content)
    assert weights(tmp_path / "again", root) == from_folder


def test_a_cache_that_is_too_small_for_the_data_is_enough(root, s3, from_folder, tmp_path, capsys):
    assert weights(tmp_path / "run", root, "data.cache_gb=0.00002") == from_folder
    assert "data.cache_gb=2e-05 is less than the 0.0 GB of the shards" in capsys.readouterr().err
    kept = [path.stat().st_size for path in (tmp_path / "cache" / "manyheads" / "storage").glob("??/*")]
    assert 0 < sum(kept) <= 20_000


def test_index_is_written_beside_the_shards(s3, packed, tmp_path, capsys):
    for path in packed.glob("*.tar"):
        s3.put(f"{tmp_path.name}/{path.name}", path.read_bytes())
    root = f"s3://bucket/{tmp_path.name}"
    with pytest.raises(ConfigurationError, match=r"there is no index beside the shards. Write it once: .* index s3://"):
        typed(*words(root))
    assert main(["index", root]) == 0
    assert f"{root}/{NAME}: 16 samples of jpg, cls in 3 shards, 3 classes" in capsys.readouterr().out
    assert s3.get(f"{tmp_path.name}/{NAME}") == (packed / NAME).read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s3, to, path: s3.put(f"{to}/train-2.tar", b"x"), "train-2.tar was added after"),
        (lambda s3, to, path: s3.delete(f"{to}/train-1.tar"), "train-1.tar is missing, but was there"),
        (lambda s3, to, path: s3.put(f"{to}/train-1.tar", b"x"), "train-1.tar has 1 bytes, and had"),
        (lambda s3, to, path: s3.put(f"{to}/{NAME}", flipped(path / NAME)), "is damaged, or was written by"),
        (lambda s3, to, path: s3.put(f"{to}/{NAME}", by_headers(path)), "has no checksums of contents"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(s3, packed, root, tmp_path, change, message):
    shutil.copytree(packed, tmp_path / "copy")
    change(s3, tmp_path.name, tmp_path / "copy")
    with pytest.raises(ConfigurationError, match=message) as error:
        typed(*words(root))
    assert error.value.key == "data.root"


def flipped(path: Path) -> bytes:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    return bytes(content)


def by_headers(folder: Path) -> bytes:
    write_index(folder, contents=False)
    return (folder / NAME).read_bytes()


def test_an_index_whose_places_are_false_reads_nothing_else(s3, packed, tmp_path):
    """It may have been sent: its digest is right, and its offsets lead outside the part, or the shard."""
    from manyheads.runner.data.tar import index_file

    copy = tmp_path / "copy"
    shutil.copytree(packed, copy)
    index = open_index(copy)
    entries = np.array(index.entries)
    entries["offset"][1, 0] = 10**12
    index_file.write(type(index)(copy, index.about, entries, index.targets), copy.resolve() / NAME)
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


def test_the_fingerprint_is_that_of_the_index(root, s3, packed, tmp_path):
    first = fingerprint(typed(*words(root)).data)
    assert (first["files"], first["bytes"]) == (3, sum(path.stat().st_size for path in packed.glob("*.tar")))
    assert first["contents"] == open_index(packed).about.digest


def test_other_options_read_folders_only():
    with pytest.raises(ConfigurationError, match=r"data.root=s3://b/x: data=imagefolder reads local folders only"):
        typed("data=imagefolder", "data.root=s3://b/x")


def test_without_obstore_it_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("manyheads.runner.run.storage.storage.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=re.escape("pip install 'manyheads[storage]'")):
        typed(*words("s3://bucket/x"))


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


def test_keys_have_the_defaults_of_the_option():
    reading = own_reading()
    assert (reading.part, reading.retry_for) == (10**6, seconds("60s"))


def test_neither_server_nor_login_is_recorded(root, s3, tmp_path):
    weights(tmp_path / "run", root)
    for path in (tmp_path / "run").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (f"127.0.0.1:{s3.port}", *SECRETS):
            assert secret.encode() not in content, path


def test_index_of_an_address_names_what_is_wrong(s3, tmp_path):
    s3.put(f"{tmp_path.name}/train.tar", b"no tar at all" * 100)
    with pytest.raises(ConfigurationError, match=r"the shard train.tar: it is not a tar archive"):
        stored.write_index(Address(f"s3://bucket/{tmp_path.name}"), own_reading(), lambda: None)
    assert s3.names(tmp_path.name) == [f"{tmp_path.name}/train.tar"]
