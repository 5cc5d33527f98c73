"""What is kept of objects on the disk: bounded, by age of use, and never half of anything."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from manyheads.runner.run.objects import Cache, StorageError
from manyheads.runner.run.objects.storage import disk_cache
from manyheads.runner.run.objects.storage.disk_cache import DiskCache, find


def called(number) -> str:
    return sha256(str(number).encode()).hexdigest()


def content(handle: int | None) -> bytes | None:
    if handle is None:
        return None
    with open(handle, "rb", buffering=0) as file:
        return os.pread(file.fileno(), 10**6, 0)


def files(folder) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.parent != folder]


@pytest.fixture(params=["without a name", "with a name"])
def cache(request, tmp_path, monkeypatch):
    if request.param == "with a name":  # as on file systems without O_TMPFILE
        monkeypatch.setattr(disk_cache, "_TMPFILE", 0)
    return DiskCache(Cache(tmp_path / "cache", 1000))


def test_an_entry_is_found_with_its_content(cache):
    os.close(cache.add(called(1), [b"ab", b"c"]))
    assert content(find(cache.folder, called(1))) == b"abc"
    assert content(cache.find(called(2))) is None
    cache.drop(called(1))
    assert content(cache.find(called(1))) is None


def test_the_first_of_two_that_write_the_same_wins(cache):
    first, second = (cache.add(called(1), [text]) for text in (b"one", b"two"))
    assert (content(first), content(second)) == (b"one", b"two")
    assert content(cache.find(called(1))) == b"one"
    assert files(cache.folder) == [3]


def test_it_is_bounded_and_what_was_not_used_for_longest_goes_first(cache):
    for number in range(9):
        os.close(cache.add(called(number), [bytes(100)]))
        os.utime(disk_cache.path_of(cache.folder, called(number)), ns=(number, number))
    content(cache.find(called(0)))
    for number in range(9, 14):
        os.close(cache.add(called(number), [bytes(100)]))
        assert sum(files(cache.folder)) <= 1000
    kept = [number for number in range(14) if content(cache.find(called(number))) is not None]
    assert {0, 13} <= {*kept}
    assert not {1, 2, 3} & {*kept}


def test_the_bound_holds_for_many_at_once_and_after_the_account_is_lost(cache):
    with ThreadPoolExecutor(8) as pool:
        for handle in pool.map(lambda number: cache.add(called(number), [bytes(90)]), range(40)):
            os.close(handle)
    assert 500 < sum(files(cache.folder)) <= 1000
    (cache.folder / "used").write_bytes(b"?")
    os.close(cache.add(called("x"), [bytes(90)]))
    assert sum(files(cache.folder)) <= 1000


def test_what_does_not_fit_or_fails_half_way_leaves_nothing(cache):
    with pytest.raises(StorageError, match=r"1,001 bytes do not fit into a cache of 1,000"):
        cache.add(called(1), [bytes(1001)])

    def broken():
        yield b"half"
        raise StorageError("no more")

    with pytest.raises(StorageError, match="no more"):
        cache.add(called(2), broken())
    assert files(cache.folder) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"the cache .*file/x cannot be written \(Not a directory\)"):
        DiskCache(Cache(tmp_path / "file" / "x", 1))


KILLED = """
import sys
from pathlib import Path
from manyheads.runner.run.objects import Cache
from manyheads.runner.run.objects.storage.disk_cache import DiskCache
def parts():
    yield b"half"
    print("half", flush=True)
    sys.stdin.read()
DiskCache(Cache(Path(sys.argv[1]), 1000)).add("ab" * 32, parts())
"""


def test_a_writer_that_is_killed_leaves_nothing(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "cache")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    assert files(tmp_path / "cache") == []
