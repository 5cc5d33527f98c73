import json
import multiprocessing
import os
import shutil
import socket
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance import provenance
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.run.seal import KEY_BYTES, NAME, is_own, is_own_place, key_file
from manyheads.runner.trust.look import Look, digest
from tests.in_process import small
from tests.run.sealing import keyed_by

CONFIG, PARTS = {"run.yaml": b"seed: 1\n"}, {"commit": "a" * 40, "code.diff": b"x"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A user of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def folder(tmp_path):
    """A run that the user recorded: first its config, then its code."""
    (tmp_path / "run").mkdir()
    seal.record(tmp_path / "run", CONFIG)
    seal.record(tmp_path / "run", PARTS)
    return tmp_path / "run"


class TestWhatIsRecorded:
    def test_each_part_and_all_together(self, folder):
        assert is_own(folder, CONFIG)
        assert is_own(folder, {"code.diff": b"x"})
        assert is_own(folder, CONFIG | PARTS)

    @pytest.mark.parametrize(
        "other", [{"run.yaml": b"seed: 2\n"}, {"code.diff": b""}, {"commit": "b" * 40}, {"directory": "/"}]
    )
    def test_nothing_else(self, folder, other):
        assert not is_own(folder, other)
        assert not is_own(folder, CONFIG | PARTS | other)

    def test_it_may_be_copied_and_moved(self, folder, tmp_path):
        shutil.copytree(folder, tmp_path / "state" / "copy")
        assert is_own(tmp_path / "state" / "copy", CONFIG | PARTS)

    @pytest.mark.parametrize(
        "edit",
        [
            lambda text: text.replace("commit", "commits"),
            lambda text: json.dumps({**json.loads(text), "covers": {}}),
            lambda text: json.dumps({**json.loads(text), "seal": "0" * 64}),
            lambda text: json.dumps({**json.loads(text), "seal": None}),
            lambda text: json.dumps({"covers": seal.digests(CONFIG)}),
            lambda text: "[" * 100_000,
            lambda text: "[]",
            lambda text: "",
        ],
    )
    def test_whoever_edits_the_seal_breaks_it(self, folder, edit):
        (folder / NAME).write_text(edit((folder / NAME).read_text()))
        assert not is_own(folder, CONFIG)

    def test_of_two_runs_no_parts_are_mixed(self, folder, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        seal.record(other, {"run.yaml": b"seed: 2\n", "commit": "b" * 40})
        assert not is_own(other, CONFIG)
        assert not is_own(folder, CONFIG | {"commit": "b" * 40})

    def test_there_is_nothing_without_a_seal(self, tmp_path):
        assert not is_own(tmp_path, CONFIG)
        assert not is_own(tmp_path, {})
        assert not is_own(tmp_path / "nothing", CONFIG)

    def test_a_link_in_its_place_is_not_followed(self, folder, tmp_path):
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / NAME).symlink_to(folder / NAME)
        assert not is_own(tmp_path / "theirs", CONFIG)

    def test_it_counts_on_every_machine_that_has_the_key(self, folder, monkeypatch):
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        assert is_own(folder, CONFIG)

    def test_seals_of_earlier_versions_do_not_count(self, tmp_path):
        (tmp_path / "run.yaml").write_text(f"# sealed {'0' * 64} {'0' * 32}\nseed: 1\n")
        assert not RunFolder(tmp_path).is_own()


class TestWhatIsTrusted:
    def test_exactly_that_in_that_folder(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        seal.trust(tmp_path / "a", seal.digests(CONFIG | PARTS))
        assert is_own(tmp_path / "a", CONFIG | PARTS)
        assert is_own(tmp_path / "a", CONFIG)
        assert not is_own(tmp_path / "a", {"run.yaml": b"seed: 2\n"})
        assert not is_own(tmp_path / "b", CONFIG)
        assert not is_own_place(tmp_path / "a")

    def test_a_place_with_everything_in_it(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        seal.trust(tmp_path / "a", None)
        assert is_own_place(tmp_path / "a" / "b")
        assert is_own(tmp_path / "a" / "b", {"run.yaml": b"anything"})
        assert not is_own_place(tmp_path)
        (tmp_path / "a").rename(tmp_path / "c")
        assert not is_own_place(tmp_path / "c" / "b")

    def test_what_is_recorded_later_is_added(self, tmp_path):
        seal.trust(tmp_path, seal.digests(CONFIG))
        seal.record(tmp_path, PARTS)
        assert is_own(tmp_path, CONFIG | PARTS)


def test_another_users_seal_does_not_count(folder, monkeypatch, tmp_path):
    other = os.getuid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: other)
        assert not is_own(folder, CONFIG)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_own(folder, CONFIG)
    assert not (tmp_path / "other").exists()  # looking at a seal makes no key
    seal.keyed("x", None)
    assert not is_own(folder, CONFIG)


def test_the_key_is_the_users_secret(folder):
    key = key_file()
    assert len(key.read_bytes()) == KEY_BYTES
    assert key.stat().st_mode & 0o777 == 0o600
    assert list(key.parent.iterdir()) == [key]
    key.chmod(0o640)  # somebody else may have read it, and could seal
    assert not is_own(folder, CONFIG)
    assert seal.keyed("x", None) is None


def test_a_damaged_key_is_none(folder):
    key_file().write_bytes(b"")
    assert not is_own(folder, CONFIG)
    assert seal.keyed("x", None) is None


@pytest.mark.parametrize("blocked", ["", "manyheads", "manyheads/key"])
def test_without_a_place_for_the_key_a_run_is_ones_own_in_this_process_alone(state, tmp_path, capsys, blocked):
    warn.cache_clear()
    path = state / blocked
    path.parent.mkdir(parents=True, exist_ok=True)
    if blocked.endswith("key"):
        path.mkdir()
    else:
        path.write_text("not a folder")
    seal.record(tmp_path, CONFIG)
    assert is_own(tmp_path, CONFIG)
    assert not is_own(tmp_path, PARTS)
    assert "set MANYHEADS_STATE to a folder of yours that is kept" in capsys.readouterr().err
    assert seal.keyed("x", None) is None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(seal.is_own, (tmp_path, CONFIG))  # a child, such as a job of a sweep
    before = multiprocessing.current_process().authkey
    try:
        multiprocessing.current_process().authkey = os.urandom(32)  # as any other process has it
        assert not is_own(tmp_path, CONFIG)
    finally:
        multiprocessing.current_process().authkey = before


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277])
def test_the_named_folder_is_the_users_alone(tmp_path, monkeypatch, umask):
    monkeypatch.setenv("MANYHEADS_STATE", str(tmp_path / "kept"))
    before = os.umask(umask)
    try:
        assert seal.keyed("x", None) is not None
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["key"]


@pytest.mark.parametrize("rights", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(state, tmp_path, monkeypatch, capsys, rights):
    """They could put what is trusted there."""
    warn.cache_clear()
    (state / "manyheads").mkdir(parents=True)
    (state / "manyheads").chmod(rights)
    seal.record(tmp_path, CONFIG)
    assert [*(state / "manyheads").iterdir()] == []
    assert "others may write to it" in capsys.readouterr().err
    monkeypatch.setenv("MANYHEADS_STATE", str(state / "manyheads"))
    with pytest.raises(
        ConfigurationError, match=r"MANYHEADS_STATE=.*: others may write to it\. Name a folder inside it"
    ):
        seal.record(tmp_path, CONFIG)
    monkeypatch.setenv("MANYHEADS_STATE", str(state / "manyheads" / "mine"))
    assert seal.keyed("x", None) is not None


def test_what_is_trusted_of_one_folder_is_not_of_another_whose_file_takes_its_name(state, tmp_path):
    (tmp_path / "mine").mkdir()
    seal.trust(tmp_path / "mine", None)
    assert is_own_place(tmp_path / "mine")
    (file,) = (state / "manyheads" / "trusted").iterdir()
    (tmp_path / "theirs").mkdir()
    seal.trust(tmp_path / "theirs", {})
    (other,) = {*(state / "manyheads" / "trusted").iterdir()} - {file}
    shutil.copy(file, other)
    assert not is_own_place(tmp_path / "theirs")
    file.parent.chmod(0o770)  # others may have written it
    assert not is_own_place(tmp_path / "mine")


def test_the_named_folder_must_be_absolute(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_STATE", "kept")
    with pytest.raises(ConfigurationError, match="MANYHEADS_STATE=kept is not allowed. Allowed: an absolute path"):
        seal.record(tmp_path, CONFIG)


def test_a_relative_place_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".local/state/manyheads/key"


def test_of_many_processes_one_makes_the_key(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        values = pool.map(keyed_by, [tmp_path / "many"] * 24, chunksize=1)
    assert len(set(values)) == 1
    assert values[0] is not None


@pytest.mark.parametrize(
    ("found", "recorded"),
    [
        (seal.digest_of({"b": [1, 2.5, None, True], "a": {"ü": "x y", "n": {"z": 1, "y": []}}}), "3e6d7a9b58d1045c"),
        (
            digest([Look(Path("/runs/a"), ("a line", "b"), {"run.yaml": "0" * 64}), Look(Path("/runs/b"), (), None)]),
            "76be3049d4508e0f",
        ),
    ],
)
def test_digests_are_those_that_were_recorded_before(found, recorded):
    assert found == recorded


def test_a_frozen_config_is_sealed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"seed": 1})
    assert folder.is_own()
    assert folder.read_config() == {"seed": 1}


def test_what_a_run_was_started_from_is_sealed_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "code_at_start", lambda: ("a" * 40, b"diff --git"))
    folder = RunFolder(tmp_path)
    folder.write_config(small())
    provenance.record(folder, RunConfig.of(small()))
    assert folder.owns(commit="a" * 40, directory=str(Path.cwd()), **{"code.diff": folder.code_changes()})
    assert folder.code_changes() == b"diff --git"
    (tmp_path / "code.diff").write_bytes(b"other")
    assert not folder.owns(commit="a" * 40, **{"code.diff": folder.code_changes()})
    assert folder.is_own()


def test_how_own_runs_are_known_names_the_folder_and_the_variable(state, monkeypatch):
    assert f"the key in {state}/manyheads: in a container, mount that folder, or set MANYHEADS_STATE" in (
        seal.how_it_is_known()
    )
    monkeypatch.setattr(seal, "state_folder", lambda: None)
    assert "set MANYHEADS_STATE to a folder of yours that is kept" in seal.how_it_is_known()
