"""The copy of a run's folder: complete or as it was before, whatever fails; and back, bit by bit."""

import os
from pathlib import Path

import pytest

from manyheads.launchers.companions.mirror.mirror_main import Watch
from manyheads.launchers.companions.mirror.upload import Mirror
from manyheads.runner.checkpoint.fetch import at_hand, fetch, with_weights, without_checkpoints
from manyheads.runner.checkpoint.mirror_manifest import NAME, MirrorManifest
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.objects import Address, StorageError
from manyheads.runner.run.objects.storage.storage import Storage
from manyheads.runner.run.run_folder import RunFolder
from tests.object_storage import BUCKET
from tests.tail import tail

pytestmark = [pytest.mark.ci, pytest.mark.needs("obstore", "moto")]
FILES = {
    "checkpoints/last.pt": b"weights of step 20",
    "checkpoints/best.pt": b"the best",
    "checkpoints/step_00000010.pt": b"weights of step 10",
    "checkpoints/step_00000020.pt": b"weights of step 20",
    "run.yaml": b"format: 2\nseed: 1\n",
    "steps.csv": b"step,loss\n20,1\n",
    ".hydra/config.yaml": b"seed: 1\n",
}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    for path, content in FILES.items():
        write(tmp_path / "run", path, content)
    for path in ("logs/heartbeat", "logs/nodes.key", "state/manyheads/key"):
        write(tmp_path / "run", path, b"x")
    write(tmp_path / "run", "checkpoints/.last.pt.0123.aside", b"half")
    return RunFolder(tmp_path / "run")


def write(folder: Path, path: str, content: bytes) -> None:
    """As checkpoints are written: another file takes the name."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{path}.new"
    beside.write_bytes(content)
    os.replace(beside, folder / path)


@pytest.fixture
def address(s3, tmp_path) -> Address:
    return Address(f"s3://{BUCKET}/{tmp_path.name}/run")


@pytest.fixture
def mirror(folder, address):
    with Storage(address, retry_for=0.5) as storage:
        yield Mirror(folder, storage)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetched(address: Address, tmp_path: Path) -> dict[str, bytes]:
    number = len(list(tmp_path.glob("back*")))
    fetch(address, tmp_path.resolve() / f"back{number}")
    return content(tmp_path / f"back{number}")


def test_what_comes_back_is_what_was_there_with_its_times(mirror, folder, address, s3, tmp_path):
    mirror.update()
    assert fetched(address, tmp_path) == FILES
    times = [(each / "checkpoints/last.pt").stat().st_mtime_ns for each in (folder.path, tmp_path / "back0")]
    assert times[0] == times[1]
    assert len([each for each in s3.asked if each.method == "PUT" and "/files/" in each.path]) == 6  # last is step 20


def test_only_what_is_new_is_stored_and_what_is_gone_is_removed(mirror, folder, address, s3, tmp_path):
    mirror.update()
    s3.asked.clear()
    write(folder.path, "checkpoints/last.pt", b"weights of step 30")
    write(folder.path, "checkpoints/step_00000030.pt", b"weights of step 30")
    (folder.checkpoints / "step_00000010.pt").unlink()
    mirror.update()
    assert len([each for each in s3.asked if each.method == "PUT" and "/files/" in each.path]) == 1
    now = {path: text for path, text in FILES.items() if "00000010" not in path}
    now |= dict.fromkeys(("checkpoints/last.pt", "checkpoints/step_00000030.pt"), b"weights of step 30")
    assert fetched(address, tmp_path) == now
    assert not [name for name in s3.names(f"{tmp_path.name}/run/files/checkpoints") if "step_00000010" in name]


@pytest.mark.parametrize("fails", [tail("/files/checkpoints/last"), f"/{NAME}"])
def test_until_the_marker_is_written_the_copy_is_the_one_before(mirror, folder, address, s3, tmp_path, fails):
    mirror.update()
    write(folder.path, "checkpoints/last.pt", b"weights of step 30")
    s3.hits = lambda asked: asked.method == "PUT" and fails in asked.path
    with s3.failing(507), pytest.raises(StorageError, match="status 507"):
        mirror.update()
    assert fetched(address, tmp_path) == FILES
    assert mirror.lacks() == ["checkpoints/last.pt"]
    mirror.update()
    assert fetched(address, tmp_path)["checkpoints/last.pt"] == b"weights of step 30"
    assert mirror.lacks() == []


def test_what_a_killed_upload_left_is_removed_by_the_next(mirror, folder, address, s3, tmp_path):
    orphan = f"{tmp_path.name}/run/files/checkpoints/last.pt.{'0' * 16}"
    for name in (orphan, f"{tmp_path.name}/run/notes.txt"):
        s3.put(name, b"x")
    with pytest.raises(ConfigurationError, match=rf"holds no run: {NAME}, which is stored last, is missing"):
        fetched(address, tmp_path)
    mirror.update()
    assert orphan not in s3.names(f"{tmp_path.name}/run")
    assert f"{tmp_path.name}/run/notes.txt" in s3.names(f"{tmp_path.name}/run")


def test_a_server_that_stores_something_else_is_not_believed(mirror, address, s3, tmp_path):
    s3.hits = lambda asked: asked.method == "GET" and "last.pt" in asked.path
    with s3.failing(bytes.upper), pytest.raises(StorageError, match=r"checkpoints/last.pt was read back with other"):
        mirror.update()
    assert s3.get(f"{tmp_path.name}/run/{NAME}") is None


def test_what_was_changed_in_the_bucket_is_named_and_leaves_no_folder(mirror, address, s3, tmp_path):
    mirror.update()
    name = next(each for each in s3.names(f"{tmp_path.name}/run/files/checkpoints") if "best" in each)
    s3.put(name, b"THE BEST")
    with pytest.raises(ConfigurationError, match=r"files/checkpoints/best.pt.* is not what was stored: its sha256"):
        fetched(address, tmp_path)
    s3.delete(name)
    with pytest.raises(ConfigurationError, match=r"files/checkpoints/best.pt.* which mirror.json names, is missing"):
        fetched(address, tmp_path)
    assert not list(tmp_path.glob("*back*"))


def test_another_run_is_not_written_over(mirror, folder, address, s3):
    mirror.update()
    write(folder.path, "run.yaml", b"format: 2\nseed: 2\n")
    with Storage(address, retry_for=0.5) as storage:
        other = Mirror(RunFolder(folder.path), storage)
        with pytest.raises(ConfigurationError, match=r"checkpoint.mirror=s3://.* holds another run. Set it to an addr"):
            other.update()


def test_some_of_it_is_enough_for_a_page_or_for_the_weights(mirror, address):
    mirror.update()
    for choose, checkpoints in (
        (without_checkpoints, set()),
        (with_weights(None), {"best.pt"}),
        (with_weights("last"), {"last.pt", "step_00000010.pt", "step_00000020.pt"}),
    ):
        with at_hand(str(address), choose) as folder:
            assert Path(folder).name == "run"
            assert {path.name for path in Path(folder, "checkpoints").glob("*")} == checkpoints
            assert Path(folder, "run.yaml").is_file()
        assert not Path(folder).exists()


def test_a_server_that_is_away_at_the_end_is_waited_for_and_then_reported(mirror, folder, s3):
    mirror.update()
    write(folder.path, "checkpoints/last.pt", b"weights of step 30")
    said = []
    s3.stop()
    ended = Watch(mirror, said.append).finish(1.0)
    assert ended["lacks"] == ["checkpoints/last.pt"]
    assert said == [{"state": "failed", "error": "the server cannot be reached, for 0.5 seconds"}]
    s3.start()
    assert Watch(mirror, said.append).finish(1.0)["lacks"] == []


def test_the_marker_names_every_file_with_its_digest(mirror, s3, tmp_path):
    mirror.update()
    stored = MirrorManifest.parse(s3.get(f"{tmp_path.name}/run/{NAME}"), of="x")
    assert {path: copy.size for path, copy in stored.files.items()} == {path: len(text) for path, text in FILES.items()}
