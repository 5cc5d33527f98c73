"""Shards of every kind in object storage: the weights of the folder, or an error that names shard and range."""

import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from manyheads.runner.__main__ import main
from manyheads.runner.commands.index import own_reading
from manyheads.runner.data.shards.index import NAME, read_index, save_index
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.rules import seconds
from manyheads.runner.provenance.fingerprint import fingerprint
from tests.data.shards.kinds import KINDS, written
from tests.in_process import small, train, typed
from tests.object_storage import SECRETS, UNAVAILABLE, cut, lie
from tests.tail import tail

pytestmark = [pytest.mark.ci, pytest.mark.needs("obstore", "moto")]


NEEDS_PYARROW = pytest.mark.needs("pyarrow")


@pytest.fixture(scope="module", params=["tar", pytest.param("parquet", marks=NEEDS_PYARROW), "tokens"])
def kind(request) -> str:
    return request.param


def but_tail(first: str):
    """All kinds, of which `make test-ci` runs the first: the others differ in how bytes become samples, not in this."""
    marks = {"parquet": [NEEDS_PYARROW]}
    kinds = [pytest.param(each, marks=[*marks.get(each, []), *[pytest.mark.tail] * (each != first)]) for each in KINDS]
    return pytest.mark.parametrize("kind", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def packed(kind, tmp_path_factory) -> Path:
    """A folder of shards, with their index."""
    return written(kind, tmp_path_factory.mktemp("packed") / "shards")


@pytest.fixture
def root(s3, packed, tmp_path) -> str:
    s3.hits = lambda asked: KINDS_OF_FILES.search(asked.path) is not None
    return s3.copy(packed, tmp_path.name)


KINDS_OF_FILES = re.compile(r"\.(tar|parquet|bin)")


def words(kind: str, root, *more: str, workers: int = 0) -> list[str]:
    about = [*KINDS[kind].words, f"data.root={root}", f"data.num_workers={workers}", "data.retry_for=5s"]
    return [*about, *more]


def weights(kind: str, folder: Path, root, *more: str, workers: int = 0) -> str:
    run = train(folder, small(*words(kind, root, "trainer.epochs=2", *more, workers=workers)))
    return run.folder.read_result()["weights_sha256"]


@pytest.fixture(scope="module")
def from_folder(kind, packed, tmp_path_factory) -> str:
    """The weights of training on the folder."""
    return weights(kind, tmp_path_factory.mktemp("local") / "run", packed)


@pytest.mark.parametrize("workers", [tail(0), 2])
def test_it_trains_as_on_the_folder_and_a_second_run_fetches_nothing(kind, root, s3, from_folder, tmp_path, workers):
    assert weights(kind, tmp_path / "run", root, workers=workers) == from_folder
    fetched = [each for each in s3.asked if each.span and KINDS_OF_FILES.search(each.path)]
    assert len(fetched) == len({*fetched}) >= 5  # parts, each once
    s3.asked.clear()
    assert weights(kind, tmp_path / "again", root, workers=workers) == from_folder
    assert [each for each in s3.asked if each.span and "classnames" not in each.path] == []


@but_tail("tokens")
@pytest.mark.parametrize("order", [pytest.param("feistel", marks=pytest.mark.tail), "blocks"])
def test_every_order_is_that_of_the_folder(kind, root, packed, tmp_path, order):
    more = (f"data.order={order}", *(["data.order_block=2", "data.order_window=2"] if order == "blocks" else []))
    assert weights(kind, tmp_path / "s3", root, *more, workers=1) == weights(kind, tmp_path / "folder", packed, *more)


@pytest.mark.parametrize("fault", [*(pytest.param(each, marks=pytest.mark.tail) for each in (UNAVAILABLE, cut)), lie])
def test_a_fault_that_passes_changes_nothing(kind, root, s3, from_folder, tmp_path, fault):
    with s3.failing(fault, times=2):
        assert weights(kind, tmp_path / "run", root) == from_folder


@but_tail("tar")
def test_a_server_that_is_killed_while_it_trains_is_waited_for(kind, root, s3, from_folder, tmp_path):
    asked = []

    def killed(content: bytes) -> bytes:
        asked.append(content)
        if len(asked) == 3:
            threading.Thread(target=s3.stop).start()
            threading.Timer(1.5, s3.start).start()
        return content

    with s3.failing(killed):
        assert weights(kind, tmp_path / "run", root, "data.read_ahead=0") == from_folder
    assert len(asked) > 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        tail(UNAVAILABLE, r"{shard}: bytes \d+ to \d+: the server answers with status 503, for 1 seconds"),
        tail(cut, r"{shard}: bytes \d+ to \d+: answers are cut off, for 1 seconds"),
        (lie, r"{shard} has changed .*, or was damaged on the way: {damaged}"),
    ],
)
def test_a_fault_that_stays_names_shard_and_range(kind, root, s3, tmp_path, fault, message):
    about = KINDS[kind]
    expected = message.format(shard=rf"(train|val)-[01]\{about.suffix}", damaged=about.damaged)
    with s3.failing(fault), pytest.raises(ConfigurationError, match=expected) as error:
        weights(kind, tmp_path / "run", root, "data.retry_for=1s", workers=1)
    assert f"127.0.0.1:{s3.port}" not in str(error.value)


def test_what_is_damaged_on_the_disk_is_fetched_again(kind, root, s3, from_folder, tmp_path):
    assert weights(kind, tmp_path / "run", root) == from_folder
    for path in (tmp_path / "cache" / "manyheads" / "storage").glob("??/*"):
        content = bytearray(path.read_bytes())
        half = len(content) // 2
        content[half:] = bytes(len(content) - half)
        path.write_bytes(content)
    assert weights(kind, tmp_path / "again", root) == from_folder


def test_a_cache_that_is_too_small_for_the_data_is_enough(kind, root, s3, packed, from_folder, tmp_path, capsys):
    size = sum(path.stat().st_size for path in packed.glob(f"*{KINDS[kind].suffix}")) / 3e9
    assert weights(kind, tmp_path / "run", root, f"data.cache_gb={size}") == from_folder
    assert "is less than the 0.0 GB of the shards" in capsys.readouterr().err
    kept = [path.stat().st_size for path in (tmp_path / "cache" / "manyheads" / "storage").glob("??/*")]
    assert 0 < sum(kept) <= size * 1e9


def test_index_is_written_beside_the_shards(kind, s3, packed, tmp_path, capsys):
    for path in packed.glob("*.*"):
        if path.name != NAME:
            s3.put(f"{tmp_path.name}/{path.name}", path.read_bytes())
    root = f"s3://bucket/{tmp_path.name}"
    with pytest.raises(ConfigurationError, match=r"there is no index beside the shards. Write it once: .* index s3://"):
        typed(*words(kind, root))
    assert main(["index", root]) == 0
    assert f"{root}/{NAME}: " in capsys.readouterr().out
    assert s3.get(f"{tmp_path.name}/{NAME}") == (packed / NAME).read_bytes()


def flipped(path: Path) -> bytes:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s3, to, path, name: s3.put(f"{to}/train-2{name}", b"x"), "train-2{} was added after"),
        (lambda s3, to, path, name: s3.delete(f"{to}/train-1{name}"), "train-1{} is missing, but was there"),
        (lambda s3, to, path, name: s3.put(f"{to}/train-1{name}", b"x"), "train-1{} has 1 bytes, and had"),
        (lambda s3, to, path, name: s3.put(f"{to}/{NAME}", flipped(path / NAME)), "is damaged, or was written by"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(kind, s3, packed, root, tmp_path, change, message):
    shutil.copytree(packed, tmp_path / "copy")
    change(s3, tmp_path.name, tmp_path / "copy", KINDS[kind].suffix)
    with pytest.raises(ConfigurationError, match=message.format(KINDS[kind].suffix)) as error:
        typed(*words(kind, root))
    assert error.value.key == "data.root"


def test_an_index_of_other_shards_is_refused(kind, s3, root, tmp_path):
    for other in {"tar", "tokens"} - {kind}:
        s3.put(f"{tmp_path.name}/train{KINDS[other].suffix}", b"x")
        with pytest.raises(ConfigurationError, match=f"{NAME} lists other shards than those of data={other}. Keep"):
            typed(*words(other, root))


@but_tail("tokens")
def test_index_names_its_own_argument_if_the_server_refuses(kind, s3, root, capsys):
    s3.hits = lambda asked: asked.method == "GET"
    with s3.failing(403):
        assert main(["index", root]) == 2
    assert f"error: folder={root}: " in capsys.readouterr().err


def test_an_index_whose_blocks_are_misplaced_reads_nothing(s3, tmp_path):
    """It may have been sent: its digest is right, and its offsets lead elsewhere."""
    folder = written("tokens", tmp_path / "tokens")
    index = read_index(folder, folder / NAME)
    entries = np.array(index.entries)
    entries["offset"][1, 0] += 1
    save_index(type(index)(folder, index.about, entries, index.targets), folder / NAME)
    with pytest.raises(ConfigurationError, match=f"{NAME} is damaged, or was written by another version"):
        typed(*words("tokens", s3.copy(folder, tmp_path.name)))


@but_tail("parquet")
def test_the_fingerprint_is_that_of_the_index(kind, root, s3, packed):
    first = fingerprint(typed(*words(kind, root)).data)
    index = read_index(packed, packed / NAME)
    assert (first["files"], first["contents"]) == (len(index.about.shards), index.about.digest)
    assert first["bytes"] == sum((packed / each.name).stat().st_size for each in index.about.shards)


def test_other_options_read_folders_only():
    with pytest.raises(ConfigurationError, match=r"data.root=s3://b/x: data=imagefolder reads local folders only"):
        typed("data=imagefolder", "data.root=s3://b/x")


@but_tail("tokens")
def test_without_obstore_it_is_refused_with_the_command_that_installs_it(kind, monkeypatch):
    monkeypatch.setattr("manyheads.runner.run.objects.storage.storage.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=re.escape("pip install 'manyheads[storage]'")):
        typed(*words(kind, "s3://bucket/x"))


def test_keys_have_the_defaults_of_the_option():
    reading = own_reading()
    assert (reading.part, reading.retry_for) == (10**6, seconds("60s"))


@but_tail("tokens")
def test_neither_server_nor_login_is_recorded(kind, root, s3, tmp_path):
    weights(kind, tmp_path / "run", root)
    for path in (tmp_path / "run").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (f"127.0.0.1:{s3.port}", *SECRETS):
            assert secret.encode() not in content, path


def test_a_token_beyond_the_vocabulary_is_named_before_training(s3, tmp_path):
    root = s3.copy(written("tokens", tmp_path / "tokens"), tmp_path.name)
    message = r"data.vocab_size=60: s3://bucket/.*/train-0.bin has the token 60 in bytes 0 to 65536. Set it"
    with pytest.raises(ConfigurationError, match=message):
        typed(*words("tokens", root, "data.vocab_size=60"))


@pytest.mark.parametrize("more", [(), ("data.end_token=7",)])
def test_documents_are_those_of_the_folder(s3, tmp_path, more):
    from manyheads.runner.data.rank.build_data import build_data
    from tests.in_process import build_dataset

    folder = written("tokens", tmp_path / "tokens")
    found = []
    for root in (folder, s3.copy(folder, tmp_path.name)):
        option = typed(*words("tokens", root, "data.documents=separate", "data.max_tokens=70001", *more)).data
        found.append(build_dataset(build_data(option), train=True))
    local, stored = found
    assert len(local) == len(stored) == 70_000 // 32
    for index in (0, 1562, len(local) - 1):  # the second is in both files
        for name, value in local[index].items():
            assert value.equal(stored[index][name])


@pytest.mark.needs("pyarrow")
def test_rows_that_name_files_are_refused(s3, tmp_path):
    import pyarrow
    import pyarrow.parquet

    from manyheads.runner.commands.index import write_index
    from manyheads.runner.data.rank.build_data import build_data
    from manyheads.runner.data.samples import CorruptSample

    (tmp_path / "rows").mkdir()
    table = pyarrow.table({"image": [{"bytes": None, "path": "/etc/passwd"}], "label": [0]})
    for split in ("train", "val"):
        pyarrow.parquet.write_table(table, tmp_path / "rows" / f"{split}.parquet")
    write_index(tmp_path / "rows", contents=True)
    root = s3.copy(tmp_path / "rows", tmp_path.name)
    samples = build_data(typed(*words("parquet", root)).data).split(train=True)
    with pytest.raises(CorruptSample, match="it names a file, which object storage is not searched for"):
        samples.paths[0]
