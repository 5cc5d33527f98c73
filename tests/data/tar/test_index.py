"""The index of tar shards: what has changed since it was made is found, and nothing else is read for a sample."""

import os

import numpy as np
import pytest

from manyheads.runner.commands.index import write_index
from manyheads.runner.data.shards.index import NAME, read_index, save_index
from manyheads.runner.data.tar.index import open_index
from manyheads.runner.data.tar.members import Samples, TarContents, Targets
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from tests.data.tar.conftest import samples, write_tar

TEXTS = [f"text {number}".encode() for number in range(12)]


def read(index, numbers=(0, 1, 2)) -> list[bytes]:
    return list(TarContents(Samples(index, numbers), [index.about.fields.index("txt")]))


@pytest.fixture(params=["in the cache", "beside", "beside, of contents"])
def indexed(request, shards):
    if request.param != "in the cache":
        write_index(shards, contents="contents" in request.param)
    open_index(shards)
    return shards


def test_samples_are_those_of_the_shards_in_their_order(indexed):
    index = open_index(indexed)
    assert read(index) == TEXTS
    assert read(index, [2, 0]) == TEXTS[9:] + TEXTS[:5]
    assert list(Targets(Samples(index, [1]))) == [2, 0, 1, 2]
    assert TarContents(Samples(index, [0]), [0])[-1] == TEXTS[4]
    assert (index.about.classes, index.about.fields) == (3, ("txt", "cls"))
    assert [each.samples for each in index.about.shards] == [5, 4, 3]


def test_it_is_made_once_and_mapped(shards, monkeypatch):
    first = open_index(shards)
    monkeypatch.setattr("manyheads.runner.data.tar.index.members", lambda *_: pytest.fail("read again"))
    again = open_index(shards)
    assert again.about == first.about
    assert again.entries.base is not None
    assert not again.entries.flags.writeable


def test_another_order_of_fields_and_missing_ones(shards):
    write_tar(shards / "x.tar", [("a.cls", b"1"), ("a.txt", b"A"), ("b.json", b"{}"), ("b.cls", b"2")])
    index = open_index(shards)
    own = Samples(index, [3])
    assert [own.content(0, [index.about.fields.index(each)]) for each in ("txt", "cls", "json")] == [b"A", b"1", None]
    assert own.content(1, [0, 2]) == b"{}"
    assert own.name(1).endswith("x.tar: b.json")
    assert index.about.classes == 3


def changed(path) -> None:
    """The same size, and another content of the same length."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"text 3", b"TEXT 3"))


def test_a_shard_that_changed_is_indexed_again_in_the_cache(shards):
    open_index(shards)
    write_tar(shards / "train-0.tar", samples(20, 2))
    assert read(open_index(shards), [0]) == [b"text 20", b"text 21"]
    write_tar(shards / "train-2.tar", samples(30, 1))
    assert len(open_index(shards).entries) == 2 + 4 + 1 + 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "train-1.tar").unlink(), r"the shard train-1.tar is missing.* index again: .* index "),
        (lambda root: write_tar(root / "train-1.tar", samples(0, 9)), r"train-1.tar has [\d,]+ bytes, and had [\d,]+"),
        (lambda root: write_tar(root / "train-9.tar", samples(0, 9)), "train-9.tar was added after the others were"),
        (lambda root: (root / NAME).write_bytes(b"x" * 99), "is damaged, or was written by"),
        (lambda root: (root / NAME).write_bytes((root / NAME).read_bytes()[:-1]), "is damaged, or was written by"),
    ],
)
def test_an_index_beside_shards_that_it_is_not_of_is_refused(shards, change, message):
    write_index(shards, contents=False)
    change(shards)
    with pytest.raises(ConfigurationError, match=message) as error:
        open_index(shards)
    assert error.value.key == "data.root"


def test_a_shard_of_the_same_size_that_belongs_to_another_index_is_noticed_when_it_is_read(indexed):
    index = open_index(indexed)
    write_tar(indexed / "train-0.tar", [(name.replace("000", "900"), text) for name, text in samples(0, 5)])
    with pytest.raises(ConfigurationError, match=r"train-0.tar has changed since it was indexed: see .*: 9002.txt"):
        TarContents(Samples(index, [0]), [0])[2]


def test_a_shard_that_was_cut_off_after_it_was_indexed(indexed):
    index = open_index(indexed)
    os.truncate(indexed / "train-0.tar", 3000)
    with pytest.raises(ConfigurationError, match=r"train-0.tar has changed since it was indexed: see .*: sample 4"):
        TarContents(Samples(index, [0]), [0])[4]


def test_a_flipped_bit_is_found_by_the_checksums_of_contents(shards):
    write_index(shards, contents=True)
    index = open_index(shards)
    changed(shards / "train-0.tar")
    assert read(index, [1]) == TEXTS[5:9]
    with pytest.raises(ConfigurationError, match=r"train-0.tar has changed since it was indexed: see .*: 0003.txt"):
        read(index, [0])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("a.txt", b""), ("b.txt", b""), ("a.cls", b"0")], "new.tar: the key 'a' occurs twice, with other samples in"),
        ([("a.txt", b""), ("a.TXT", b"")], "new.tar: the key 'a' has two files 'txt'"),
        ([(f"a.{n}.txt", b"") for n in range(40)], "new.tar: a.32.txt would be field number 33"),
        ([("../a.txt", b"")], "new.tar: its member '../a.txt' points outside the archive"),
    ],
)
def test_what_is_wrong_with_a_shard_is_said_with_its_name(shards, files, message):
    write_tar(shards / "new.tar", files)
    with pytest.raises(ConfigurationError, match=message):
        open_index(shards)
    with pytest.raises(ConfigurationError, match=message):
        write_index(shards, contents=False)
    assert not (shards / NAME).exists()


def test_a_truncated_shard_is_named(shards):
    os.truncate(shards / "val-0.tar", 2048)
    with pytest.raises(ConfigurationError, match=r"the shard val-0.tar: it is cut off"):
        open_index(shards)


def test_a_sent_shard_that_is_a_link_is_not_read(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    index = open_index(shards)
    (shards / "val-0.tar").rename(tmp_path / "mine.tar")
    (shards / "val-0.tar").symlink_to(tmp_path / "mine.tar")
    with pytest.raises(ConfigurationError, match="points outside this folder"):
        TarContents(Samples(index, [2]), [0])[0]
    with pytest.raises(ConfigurationError, match="points outside this folder"):
        open_index(shards)
    seal.trust(shards, None)
    assert read(open_index(shards), [2]) == TEXTS[9:]


def test_a_sent_index_reads_nothing_but_the_shards(shards):
    """Whose offsets lie anywhere, and whose shards are elsewhere."""
    write_index(shards, contents=False)
    index = read_index(shards, shards / NAME)
    entries = index.entries.copy()
    entries["offset"] = 2**63
    save_index(type(index)(shards, index.about, entries, index.targets), shards / NAME)
    with pytest.raises((ConfigurationError, OSError, OverflowError)):
        read(open_index(shards))
    other = index.about.shards[0]._replace(name="../other.tar")
    about = type(index.about)(**{**vars(index.about), "shards": (other, *index.about.shards[1:])})
    save_index(type(index)(shards, about, index.entries, index.targets), shards / NAME)
    with pytest.raises(ConfigurationError, match=r"the shard ../other.tar is missing"):
        open_index(shards)


def test_an_index_that_is_a_link_out_of_a_sent_folder_is_not_read(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_index(shards, contents=False)
    (shards / NAME).rename(tmp_path / "mine")
    (shards / NAME).symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="points outside this folder"):
        open_index(shards)


def test_where_no_cache_can_be_written_it_is_made_by_each_process(shards, tmp_path):
    (tmp_path / "cache").write_text("a file, where a folder should be")
    assert read(open_index(shards)) == TEXTS


def test_files_that_are_open_are_few_and_closed(shards, monkeypatch):
    monkeypatch.setattr("manyheads.runner.data.tar.members.MOST_OPEN", 1)
    index = open_index(shards)
    before = len(os.listdir("/proc/self/fd"))
    texts = TarContents(Samples(index, [0, 1, 2]), [0])
    assert [texts[each] for each in (0, 11, 5, 1, 10)] == [TEXTS[each] for each in (0, 11, 5, 1, 10)]
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_system_is_told_which_samples_are_next(shards, monkeypatch):
    told = []
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, *about: told.append((os.pread(handle, 6, about[0]), about)))
    samples = Samples(index := open_index(shards), [0, 1, 2])
    samples.read_ahead.fetch(np.array([7, 0]))
    assert [name for name, _ in told] == [b"0007.t", b"0007.c", b"0000.t", b"0000.c"]
    assert told[0][1] == (index.entries[7, 0]["offset"] - 512, 512 + len("text 7"), os.POSIX_FADV_WILLNEED)


def test_a_missing_shard_is_no_error_before_it_is_read(shards):
    samples = Samples(open_index(shards), [0, 1, 2])
    (shards / "train-1.tar").unlink()
    samples.read_ahead.fetch(np.array([7, 0]))
    with pytest.raises(ConfigurationError, match="train-1.tar is missing"):
        samples.content(7, [0])


def test_names_of_fields_are_printed_without_control_characters(tmp_path, capsys):
    write_tar(tmp_path / "sent.tar", [("0.\x1b[2J", b"1")])
    write_index(tmp_path, contents=False).show()
    assert capsys.readouterr().out.endswith(": 1 sample of \\x1b[2j in 1 shard\n")


def test_members_without_a_field_are_counted_and_named(tmp_path, capsys):
    write_tar(tmp_path / "a.tar", [("a.txt", b"x"), ("photo", b"x"), (".hidden", b"x"), ("__meta__", b"x")])
    assert len(open_index(tmp_path).about.shards) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("warning: skipped 1 member (photo) of the shards below ")
    assert said.endswith(": a name without a dot belongs to no sample.")
