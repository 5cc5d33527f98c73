import hashlib
import hmac
import multiprocessing
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from manyheads.runner.provenance import record as provenance
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import KEY_BYTES, is_sealed_here, key_file, seal_file, sealed, unsealed
from tests.in_process import small
from tests.run.sealing import seal_one


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A user of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(sealed(b"seed: 1\n", name="run.yaml"))
    return path


def test_a_sealed_file_is_known_and_keeps_its_content(file):
    assert is_sealed_here(file)
    assert file.read_bytes().startswith(b"# sealed ")
    assert unsealed(file.read_bytes()) == b"seed: 1\n"


def test_it_may_be_copied_and_moved(file, tmp_path):
    copy = shutil.copy(file, tmp_path / "state" / "run.yaml")
    assert is_sealed_here(Path(copy))


def test_sealing_twice_is_sealing_once(file):
    before = file.read_bytes()
    seal_file(file)
    assert file.read_bytes() == before
    seal_file(file.with_name("nothing.yaml"))
    assert not file.with_name("nothing.yaml").exists()


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content + b"\n",
        lambda content: content.replace(b"seed: 1", b"seed: 2"),
        lambda content: b"\n" + content,
        lambda content: b"# sealed " + b"0" * 64 + content[73:],
        lambda content: content[73 + 1 :],
        lambda content: content.replace(b"# sealed ", b"#sealed "),
        lambda content: b"",
    ],
)
def test_whoever_edits_the_file_breaks_the_seal(file, edit):
    file.write_bytes(edit(file.read_bytes()))
    assert not is_sealed_here(file)


def test_the_seal_of_one_file_is_none_of_another(file):
    other = file.rename(file.with_name("code.diff"))
    assert not is_sealed_here(other)


def test_there_is_no_seal_where_there_is_no_file(tmp_path):
    assert not is_sealed_here(tmp_path / "run.yaml")
    assert not is_sealed_here(tmp_path)


def test_it_counts_on_every_machine_that_has_the_key(file, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert is_sealed_here(file)


def test_a_seal_of_earlier_versions_counts_on_its_own_host(file, monkeypatch):
    about = f"{os.getuid()}\0{socket.gethostname()}\0run.yaml\0".encode()
    code = hmac.new(key_file().read_bytes(), about + b"seed: 1\n", hashlib.sha256).hexdigest()
    file.write_bytes(f"# sealed {code}\nseed: 1\n".encode())
    assert is_sealed_here(file)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert not is_sealed_here(file)


def test_what_was_taken_over_is_the_users_own_until_it_is_edited(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 2\n")
    assert not is_sealed_here(path)
    seal.take_over("run.yaml", b"seed: 2\n")
    assert is_sealed_here(path)
    path.write_text("seed: 3\n")
    assert not is_sealed_here(path)
    assert not seal.is_taken_over("code.diff", b"seed: 2\n")


def test_another_users_seal_does_not_count(file, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 12345)
        assert not is_sealed_here(file)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_sealed_here(file)
    assert not (tmp_path / "other").exists()  # looking at a seal makes no key
    sealed(b"", name="x")
    assert not is_sealed_here(file)


def test_the_key_is_the_users_secret(file):
    key = key_file()
    assert len(key.read_bytes()) == KEY_BYTES
    assert key.stat().st_mode & 0o777 == 0o600
    assert list(key.parent.iterdir()) == [key]
    key.chmod(0o640)  # somebody else may have read it, and could seal
    assert not is_sealed_here(file)
    assert sealed(b"a", name="x") == b"a"


def test_a_damaged_key_is_none(file):
    key_file().write_bytes(b"")
    assert not is_sealed_here(file)
    assert sealed(b"a", name="x") == b"a"


@pytest.mark.parametrize("blocked", ["", "manyheads", "manyheads/key"])
def test_without_a_place_for_the_key_files_stay_as_they_are(state, blocked):
    path = state / blocked
    path.parent.mkdir(parents=True, exist_ok=True)
    if blocked.endswith("key"):
        path.mkdir()
    else:
        path.write_text("not a folder")
    assert sealed(b"a", name="x") == b"a"


def test_a_relative_place_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".local/state/manyheads/key"


def test_of_many_processes_one_makes_the_key(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        seals = pool.map(seal_one, [tmp_path / "many"] * 24, chunksize=1)
    assert len(set(seals)) == 1
    assert seals[0] is not None


def test_a_frozen_config_is_sealed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"seed": 1})
    assert is_sealed_here(folder.config)
    assert folder.read_config() == {"seed": 1}


def test_recorded_changes_are_sealed(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "code_at_start", lambda: (None, b"diff --git"))
    folder = RunFolder(tmp_path)
    provenance.record(folder, small())
    assert is_sealed_here(folder.code_diff)
    assert unsealed(folder.code_diff.read_bytes()) == b"diff --git"


def test_a_sealed_diff_is_applied_as_it_is(tmp_path):
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    diff = b"diff --git a/a.py b/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+print(1)\n"
    (tmp_path / "code.diff").write_bytes(seal.sealed(diff, name="code.diff"))
    subprocess.run(["git", "apply", "code.diff"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.py").read_text() == "print(1)\n"
