"""The index that Energon keeps, as its SqliteIndexWriter leaves it."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from manyheads.runner.data.tar.index import open_index
from manyheads.runner.data.tar.members import Samples, TarContents
from manyheads.runner.data.tar.walk import members
from manyheads.runner.errors import ConfigurationError
from tests.data.tar.conftest import samples, write_tar
from tests.data.tar.test_index import TEXTS, read

# What `energon prepare` of megatron-energon 7.4.1 wrote for the shards of the fixture ``shards``, by sqlite3's .dump.
RECORDED = (Path(__file__).parent / "energon-7.4.1.sql").read_text()
SCHEMA = "\n".join(each for each in re.findall(r"CREATE [^;]*;", RECORDED))


@pytest.fixture
def energon(shards):
    """An index of Energon beside the shards, which it numbers in an order of its own."""
    (shards / ".nv-meta").mkdir()
    names = ["val-0.tar", "train-0.tar", "train-1.tar"]
    (shards / ".nv-meta" / ".info.json").write_text(json.dumps({"shard_counts": dict.fromkeys(names, 3)}))
    with closing(sqlite3.connect(shards / ".nv-meta" / "index.sqlite")) as database:
        database.executescript(SCHEMA)
        for number, name in enumerate(names):
            with open(shards / name, "rb") as file:
                own = [*members(file.fileno(), (shards / name).stat().st_size)]
            keys = [*dict.fromkeys(each.key for each in own)]
            rows = [(number, keys.index(each.key), each.field, each.offset, each.size) for each in own]
            database.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", rows)
            database.executemany(
                "INSERT INTO samples VALUES (?, ?, ?, 0, 0)", [(number, k, i) for i, k in enumerate(keys)]
            )
        database.commit()
    return shards


def test_the_index_that_energon_wrote_is_read(shards, no_headers):
    (shards / ".nv-meta").mkdir()
    counts = {"train-0.tar": 5, "train-1.tar": 4, "val-0.tar": 3}
    about = {"energon_version": "7.4.1", "shard_counts": counts}
    (shards / ".nv-meta" / ".info.json").write_text(json.dumps(about, indent=2))
    for name in counts:
        (shards / f"{name}.idx").write_bytes(b"")  # offsets of samples alone, which are not needed
    with closing(sqlite3.connect(shards / ".nv-meta" / "index.sqlite")) as database:
        database.executescript(RECORDED)
    index = open_index(shards)
    assert read(index) == TEXTS
    assert (index.about.fields, index.about.classes) == (("txt", "cls"), 3)


def execute(root, command: str) -> None:
    with closing(sqlite3.connect(root / ".nv-meta" / "index.sqlite")) as database:
        database.executescript(command)


@pytest.fixture
def no_headers(monkeypatch):
    """No header is looked for: the index says where everything is."""
    monkeypatch.setattr("manyheads.runner.data.tar.index.members", lambda *_: pytest.fail("read headers"))


def test_samples_are_where_it_says(energon, no_headers):
    index = open_index(energon)
    assert read(index) == TEXTS
    assert index.about.classes == 3
    assert not [each for each in (energon / ".nv-meta").iterdir() if each.name.endswith(("-wal", "-shm", "-journal"))]


def test_a_shard_that_it_does_not_have_or_that_is_missing(energon):
    write_tar(energon / "x.tar", samples(0, 1))
    with pytest.raises(ConfigurationError, match=r"x.tar: it is not in .nv-meta/index.sqlite. Run energon prepare"):
        open_index(energon)
    (energon / "x.tar").unlink()
    (energon / "train-1.tar").unlink()
    with pytest.raises(ConfigurationError, match=r"index.sqlite names train-1.tar, which is missing"):
        open_index(energon)


@pytest.mark.parametrize("offset", ["4", "99999999", "'x'", "NULL"])
def test_an_index_of_another_shard(energon, offset):
    execute(
        energon, f"UPDATE sample_parts SET content_byte_offset = {offset} WHERE tar_file_id = 1 AND sample_index = 2"
    )
    with pytest.raises(
        ConfigurationError, match=r"train-0.tar: it has [\d,]+ bytes, but .nv-meta/index.sqlite says that"
    ):
        open_index(energon)


def test_a_shard_with_something_else_at_that_place(energon):
    index = open_index(energon)
    write_tar(energon / "train-0.tar", [(name, b"longer " + text) for name, text in samples(0, 5)])
    with pytest.raises(ConfigurationError, match="train-0.tar has changed since it was indexed"):
        TarContents(Samples(index, [0]), [0])[1]


def test_what_is_no_database_or_computes_its_tables(energon, shards):
    execute(energon, "ALTER TABLE samples RENAME TO hidden; CREATE VIEW samples AS SELECT * FROM hidden")
    assert read(open_index(energon)) == TEXTS  # by their headers
    (energon / ".nv-meta" / "index.sqlite").write_bytes(b"no database" * 99)
    (energon / "train-0.tar").touch()
    with pytest.raises(ConfigurationError, match=r"index.sqlite cannot be read \(file is not a database\)"):
        open_index(energon)
