"""Object storage through the process beside: a real server that fails in each way, and forks that share it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from manyheads.runner.run.objects import Address, Cache, MissingObject, StorageError
from manyheads.runner.run.objects.storage import storage as module
from manyheads.runner.run.objects.storage.storage import Storage
from tests.object_storage import BUCKET, UNAVAILABLE, cut, stall

pytestmark = [pytest.mark.ci, pytest.mark.needs("obstore", "moto")]
CONTENT = os.urandom(10_000)
ENTRY = "ab" * 32


@pytest.fixture
def prefix(s3, tmp_path) -> str:
    s3.put(f"{tmp_path.name}/a/b.bin", CONTENT)
    return tmp_path.name


@pytest.fixture
def storage(s3, prefix, tmp_path):
    cache = Cache(tmp_path / "parts", 10**6)
    with Storage(Address(f"s3://{BUCKET}/{prefix}"), retry_for=6.0, cache=cache) as found:
        yield found


def part(storage, start=1000, stop=3000, **more) -> bytes:
    with storage.part("a/b.bin", start, stop, entry=sha256(f"{start}-{stop}".encode()).hexdigest(), **more) as file:
        return os.pread(file.fileno(), 10**6, 0)


def test_objects_are_listed_read_stored_and_removed(storage, tmp_path):
    path = tmp_path / "new"
    path.write_bytes(CONTENT * 700)  # in several parts
    with open(path, "rb") as file:
        storage.store("new.bin", file)
    assert [(each.name, each.size) for each in storage.list()] == [("a/b.bin", 10_000), ("new.bin", 7_000_000)]
    assert storage.read("new.bin") == CONTENT * 700
    assert storage.sha256("new.bin") == sha256(CONTENT * 700).hexdigest()
    assert [each.name for each in storage.list("a")] == ["a/b.bin"]
    storage.remove("new.bin")
    storage.remove("new.bin")
    with pytest.raises(MissingObject, match="there is no such object"):
        storage.read("new.bin")


def test_a_part_is_fetched_once_and_again_on_request(storage, s3):
    assert part(storage) == part(storage) == CONTENT[1000:3000]
    assert len([each for each in s3.asked if each.span]) == 1
    assert part(storage, again=True) == CONTENT[1000:3000]
    assert [each.span for each in s3.asked if each.span] == ["bytes=1000-2999"] * 2


def test_what_is_fetched_ahead_is_there_when_it_is_needed(storage, s3):
    entry = sha256(b"0-500").hexdigest()
    storage.fetch_ahead("a/b.bin", 0, 500, entry=entry)
    deadline = time.monotonic() + 20
    while not list(storage.cache.folder.glob(f"??/{entry}")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    s3.stop()
    assert part(storage, 0, 500) == CONTENT[:500]


@pytest.mark.parametrize("fault", [UNAVAILABLE, cut])
def test_a_fault_that_passes_is_waited_for(storage, s3, fault):
    with s3.failing(fault, times=3):
        assert part(storage) == CONTENT[1000:3000]


def test_a_server_that_does_not_answer_is_asked_again(storage, s3):
    with s3.failing(stall, times=1):
        assert part(storage) == CONTENT[1000:3000]


def test_a_server_that_is_away_for_a_while_is_waited_for(storage, s3):
    s3.stop()
    threading.Timer(1.5, s3.start).start()
    assert part(storage) == CONTENT[1000:3000]


@pytest.mark.parametrize(
    ("fault", "reason"), [(UNAVAILABLE, "the server answers with status 503"), (cut, "answers are cut off")]
)
def test_a_fault_that_stays_is_an_error_after_the_stated_time(s3, prefix, tmp_path, fault, reason):
    with (
        Storage(Address(f"s3://{BUCKET}/{prefix}"), retry_for=1.0, cache=Cache(tmp_path / "parts", 10**6)) as own,
        s3.failing(fault),
    ):
        begin = time.monotonic()
        with pytest.raises(StorageError, match=f"^{reason}, for 1 seconds$"):
            part(own)
        assert time.monotonic() - begin < 6
        assert not list((tmp_path / "parts").glob("??/*"))


def test_errors_name_no_server(s3, prefix):
    with Storage(Address(f"s3://{BUCKET}/{prefix}"), retry_for=0.5) as own:
        s3.stop()
        with pytest.raises(StorageError, match=r"^the server cannot be reached, for 0.5 seconds$"):
            own.list()


def test_what_is_refused_is_not_asked_again(storage, s3):
    with s3.failing(403):
        begin = time.monotonic()
        with pytest.raises(StorageError, match="your credentials do not allow it"):
            part(storage)
        assert time.monotonic() - begin < 4


def test_forks_use_the_same_process(storage):
    def child(answer) -> None:
        answer.send_bytes(b"".join(part(storage, start, start + 100) for start in range(0, 1000, 100)))

    context = multiprocessing.get_context("fork")
    channels = []
    for _ in range(3):
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        process.start()
        channels.append((ours, process))
    for ours, process in channels:
        assert ours.recv_bytes() == CONTENT[:1000]
        process.join()


def test_a_process_that_was_killed_is_reported_and_none_is_left(storage):
    os.kill(storage._process.pid, signal.SIGKILL)
    with pytest.raises(StorageError, match="the process that talks to object storage has ended unexpectedly"):
        part(storage)
    storage.close()
    assert storage._process.returncode == -signal.SIGKILL


def test_it_ends_with_its_user(s3, prefix):
    own = Storage(Address(f"s3://{BUCKET}/{prefix}"), retry_for=1.0)
    process = own._process
    del own
    assert process.returncode == 0


USER = """
import sys, time
from manyheads.runner.run.objects import Address
from manyheads.runner.run.objects.storage.storage import Storage
storage = Storage(Address(sys.argv[1]), retry_for=1.0)
print(storage._process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_a_user_that_is_killed(s3, prefix):
    command = [sys.executable, "-c", USER, f"s3://{BUCKET}/{prefix}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as user:
        process = int(user.stdout.readline())
        user.kill()
    deadline = time.monotonic() + 20
    while is_running(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_file_that_could_not_be_stored_is_not_there(s3, prefix):
    s3.hits = lambda asked: asked.method == "PUT"
    with Storage(Address(f"s3://{BUCKET}/{prefix}"), retry_for=0.5) as own, tempfile.TemporaryFile() as file:
        with s3.failing(507), pytest.raises(StorageError, match=r"the server answers with status 507, for 0.5 seconds"):
            own.store("x", file)
        assert [each.name for each in own.list()] == ["a/b.bin"]


def test_without_obstore_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(StorageError, match=r"obstore is not installed: pip install 'manyheads\[storage\]'"):
        Storage(Address("s3://bucket"), retry_for=1.0)
