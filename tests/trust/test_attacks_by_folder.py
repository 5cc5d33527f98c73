"""A run folder that somebody sent, or that comes back changed: links, pipes, other checkpoints, texts, other code."""

import _codecs
import json
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

from manyheads.runner.checkpoint.rank.load import load
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import data_files, files
from manyheads.runner.run.data_files import no_link, read_json
from manyheads.runner.run.folder import Folder
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import COMMANDS, FAST
from tests.trust.foreign import assert_refused, given, snapshot

WRITTEN = (
    *("run.log", "steps.csv", "epochs.csv", "gpu.csv", "host.csv", "result.json", "provenance.json", "code.diff"),
    *(
        "model.json",
        "logs/rank_0.log",
        "logs/heartbeat",
        "logs/torchrun.log",
        "checkpoints/last.pt",
        "checkpoints/best.pt",
    ),
)


@pytest.fixture
def precious(here):
    (here / "precious").write_text("mine")
    return here / "precious"


class TestLinks:
    @pytest.mark.parametrize("own", [True, False], ids=["sealed", "foreign"])
    @pytest.mark.parametrize("name", WRITTEN)
    def test_a_file_that_a_run_writes(self, resume_here, here, config, precious, name, own):
        """Also in a run of one's own, which was elsewhere meanwhile."""
        folder = RunFolder(here / "theirs")
        folder.write_config(config) if own else given(folder.path, config)
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(precious)
        assert folder.is_own() == own
        assert_refused(resume_here("theirs"), here, "outside")
        assert precious.read_text() == "mine"

    @pytest.mark.parametrize("name", ["logs", "checkpoints", "tensorboard", ".hydra", "parity"])
    def test_a_folder(self, resume_here, here, config, name):
        (here / "precious").mkdir()
        (given(here / "theirs", config) / name).symlink_to(here / "precious")
        assert_refused(resume_here("theirs"), here, "outside")
        assert not list((here / "precious").iterdir())

    @pytest.mark.parametrize("name", ["logs/rank_0.log", "steps.csv"])
    def test_a_pipe_that_would_wait_for_ever(self, resume_here, here, config, name):
        path = given(here / "theirs", config) / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        assert_refused(resume_here("theirs"), here, "not a plain file")

    def test_a_folder_that_cannot_be_listed(self, resume_here, here, config, monkeypatch):
        given(here / "theirs" / "logs", config)
        given(here / "theirs", config)
        entries = Folder.list

        def refused(folder):  # as for mode 0300, where this test is root
            if folder.path.name == "logs":
                raise PermissionError(13, "Permission denied")
            return entries(folder)

        monkeypatch.setattr(Folder, "list", refused)
        assert_refused(resume_here("theirs"), here, "cannot be read")

    @pytest.mark.parametrize(
        ("name", "typed"), [("run.log", ["hydra.run.dir=new"]), ("multirun.yaml", ["-m", "hydra.sweep.dir=new"])]
    )
    def test_in_a_folder_that_a_run_shall_have(self, run_here, here, precious, name, typed):
        (here / "new").mkdir()
        (here / "new" / name).symlink_to(precious)
        assert_refused(run_here(*FAST, *typed), here, "is a link")
        assert precious.read_text() == "mine"


@pytest.mark.parametrize("command", [("resume",), ("publish", "--to", "mlflow"), ("evaluate",), ("reproduce",)])
def test_a_job_that_is_a_link_to_another_run(command_here, here, config, command):
    """The user types its path, which is in somebody's sweep; the other run is his own, elsewhere."""
    run = RunFolder(here / "mine")
    run.write_config(config)
    (here / "theirs").mkdir()
    (here / "theirs" / "ledger.jsonl").write_text('{"options": {}}\n')
    (here / "theirs" / "0").symlink_to(run.path)
    before = snapshot(run.path)
    name, *options = command
    done = command_here(name, "theirs/0", *options)
    assert_refused(done, here, "is a link")
    assert snapshot(run.path) == before


class TestAFileIsOpened:
    """The look at the whole folder comes first; this holds when somebody changes it afterwards."""

    WAYS = {
        "append": lambda path: open(path, "a", opener=no_link).close(),
        "empty": lambda path: open(path, "wb", opener=no_link).close(),
        "change": lambda path: open(path, "r+b", opener=no_link).close(),
        "create": lambda path: open(path, "xb", opener=no_link).close(),
        "read": lambda path: open(path, "rb", opener=no_link).close(),
        "lock": lambda path: files.in_turn(path).__enter__(),
        "lock what is there": lambda path: files.exclusive(path, of="it").__enter__(),
    }

    @pytest.mark.parametrize("way", WAYS)
    def test_but_no_link(self, tmp_path, way):
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "file").symlink_to(tmp_path / "precious")
        with pytest.raises((ConfigurationError, FileExistsError)):
            self.WAYS[way](tmp_path / "file")
        assert (tmp_path / "precious").read_text() == "mine"

    @pytest.mark.parametrize("way", WAYS)
    def test_in_no_folder_that_is_a_link(self, tmp_path, way):
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").write_text("mine")
        (tmp_path / "link").symlink_to(tmp_path / "precious")
        with pytest.raises(ConfigurationError, match="link"):
            self.WAYS[way](tmp_path / "link" / "file")
        assert (tmp_path / "precious" / "file").read_text() == "mine"

    @pytest.mark.parametrize("way", ["append", "empty", "change"])
    def test_but_no_second_name_of_another_file(self, tmp_path, way):
        (tmp_path / "precious").write_text("mine")
        os.link(tmp_path / "precious", tmp_path / "file")
        with pytest.raises(ConfigurationError):
            self.WAYS[way](tmp_path / "file")
        assert (tmp_path / "precious").read_text() == "mine"

    def test_a_link_is_replaced_by_what_is_written_whole(self, tmp_path):
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "file").symlink_to(tmp_path / "precious")
        files.write_whole(tmp_path / "file", "new")
        assert ((tmp_path / "precious").read_text(), (tmp_path / "file").read_text()) == ("mine", "new")
        assert not (tmp_path / "file").is_symlink()

    def test_its_temporary_name_cannot_be_foreseen(self, tmp_path):
        """What lies under the name that earlier versions used is not touched."""
        (tmp_path / "precious").write_text("mine")
        (tmp_path / f".file.{os.getpid()}.aside").symlink_to(tmp_path / "precious")
        files.write_whole(tmp_path / "file", "new")
        files.also_named(tmp_path / "file", tmp_path / "second")
        assert (tmp_path / "precious").read_text() == "mine"

    def test_what_it_may_hold_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr(data_files, "MOST_BYTES", 10)
        (tmp_path / "file").write_bytes(b"{}" * 2**24)
        with pytest.raises(ConfigurationError, match="has more than"):
            read_json(tmp_path / "file")

    @pytest.mark.parametrize("mask", [0o000, 0o077])
    def test_the_users_umask_counts(self, tmp_path, mask):
        before = os.umask(mask)
        try:
            files.write_whole(tmp_path / "file", "new")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


class TestTheSeal:
    def test_a_run_that_is_moved_stays_its_owners(self, tmp_path, config):
        RunFolder(tmp_path / "a").write_config(config)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        (tmp_path / "b").rename(tmp_path / "c")
        assert RunFolder(tmp_path / "c").is_own()

    def test_a_config_that_is_changed_after_the_look(self, tmp_path, config):
        folder = RunFolder(tmp_path)
        folder.write_config(config)
        folder.pin_config()
        given(tmp_path, config | {"loss": {"_target_": "os.system"}})
        with pytest.raises(ConfigurationError, match="was edited while the run was starting"):
            folder.read_config()

    def test_ranks_notice_it_too(self, tmp_path, config, monkeypatch):
        RunFolder(tmp_path).write_config(config)
        for name, value in RunFolder(tmp_path).pin_config().items():
            monkeypatch.setenv(name, value)
        assert RunFolder(tmp_path).read_config()["seed"] == config["seed"]
        given(tmp_path, config | {"loss": {"_target_": "os.system"}})
        with pytest.raises(ConfigurationError, match="was edited"):
            RunFolder(tmp_path).read_config()
        RunFolder(tmp_path / "other").write_config(config)
        assert RunFolder(tmp_path / "other").read_config()


def checkpoint(path: Path, **content: object) -> Path:
    torch.save({"version": 1, **content}, path)
    return path


class TestCheckpoints:
    def test_one_that_unpacks_to_more_than_its_size(self, tmp_path):
        checkpoint(tmp_path / "a.pt", model={"w": torch.zeros(10**6)})
        packed = zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(tmp_path / "a.pt") as plain, packed:
            for entry in plain.infolist():
                packed.writestr(entry.filename, plain.read(entry))
        with pytest.raises(ConfigurationError, match="would unpack to more than its own size"):
            load(tmp_path / "b.pt")

    @pytest.mark.parametrize("code", ["os.system", "builtins.exec"])
    def test_one_that_runs_code(self, tmp_path, code, monkeypatch):
        monkeypatch.chdir(tmp_path)

        class Evil:
            def __reduce__(self):
                return (os.system, ("touch mark",)) if code == "os.system" else (exec, ("open('mark', 'w')",))

        torch.save({"version": 1, "model": Evil()}, tmp_path / "a.pt")
        with pytest.raises(ConfigurationError, match="damaged or not a checkpoint"):
            load(tmp_path / "a.pt")
        assert not (tmp_path / "mark").exists()

    @pytest.mark.parametrize("is_archive", [True, False])
    @pytest.mark.parametrize(
        "call", [(bytearray, 10**10), (_codecs.encode, "a" * 100, "utf_32")], ids=["zeros", "codec"]
    )
    def test_one_whose_few_bytes_would_take_any_amount_of_memory(self, tmp_path, call, is_archive):
        """Nested, a codec that doubles a text does too."""

        class Bomb:
            def __reduce__(self):
                return call[0], call[1:]

        torch.save({"version": 1, "model": {"w": Bomb()}}, tmp_path / "a.pt", _use_new_zipfile_serialization=is_archive)
        with pytest.raises(ConfigurationError, match=f"it calls .*{call[0].__name__}"):
            load(tmp_path / "a.pt")

    @pytest.mark.parametrize("is_archive", [True, False])
    def test_what_torch_writes_is_read(self, tmp_path, is_archive):
        """Large offsets, and the same tuple in each of many groups, are no attack."""
        betas = (0.9, 0.95)
        groups = [{"betas": betas, "lr": 0.1, "names": []} for _ in range(1000)]
        content = {"model": {"w": torch.ones(100)}, "optimizer": groups}
        torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=is_archive)
        assert load(tmp_path / "a.pt")["optimizer"] == groups

    def test_a_pipe(self, tmp_path):
        os.mkfifo(tmp_path / "a.pt")
        with pytest.raises(ConfigurationError, match="not a plain file"):
            load(tmp_path / "a.pt")

    def test_names_in_it_do_not_steer_the_terminal(self, tmp_path, capsys):
        from manyheads.runner.checkpoint.rank.fit import load_model
        from manyheads.runner.errors import report

        with pytest.raises(ConfigurationError) as caught:
            load_model(torch.nn.Linear(1, 1), {"\x1b]0;owned\x07": torch.zeros(1)}, "a.pt")
        report(caught.value)
        assert "\x1b" not in (printed := capsys.readouterr().err)
        assert "\\x1b]0;owned" in printed


RESULTS = {
    "a list": "[]",
    "a text": '"x"',
    "nothing": "",
    "a number of many digits": '{"status": ' + "1" * 5000 + "}",
    "nested lists": "[" * 100_000,
    "no text": b"\xff\xfe",
    "not a number": '{"status": NaN, "steps": Infinity}',
    "other types": '{"status": "completed", "steps": {}, "metrics": [], "files": 3, "objective": "x"}',
    "a link to elsewhere": None,
}


@pytest.mark.parametrize("command", ["resume", "reproduce", "report"])
@pytest.mark.parametrize("attack", RESULTS)
def test_a_result_that_is_none(command_here, here, config, attack, command):
    folder = RunFolder(here / "theirs")
    given(folder.path, config | {"seed": "x"})  # so that resume refuses it, if nothing else does
    content = RESULTS[attack]
    if content is None:
        (here / "secret.json").write_text('{"password": "hunter2"}')
        folder.result.symlink_to(here / "secret.json")
    else:
        folder.result.write_bytes(content if isinstance(content, bytes) else content.encode())
    folder.provenance.write_text("{}")
    done = command_here(command, "theirs")
    assert done.code in (0, 1, 2)
    assert "Traceback" not in done.err
    assert "hunter2" not in done.out + done.err


class TestTheCodeOfARun:
    @pytest.fixture
    def theirs(self, finished_run, here):
        """A run of one's own that somebody changed; ``seal`` of its record does not fit any more."""
        shutil.copytree(finished_run.path, here / "theirs")
        return RunFolder(here / "theirs")

    @staticmethod
    def change(folder: RunFolder, **provenance: object) -> None:
        content = {**json.loads(folder.provenance.read_text()), **provenance}
        folder.write_json(folder.provenance, content)
        folder.write_json(folder.result, {**folder.read_result(), "files": folder.digests()})

    def test_any_other_commit_of_ones_own_history(self, command_here, here, theirs):
        """It could have faults that were mended since."""
        from manyheads.runner.provenance.code_state import ROOT

        first = subprocess.check_output(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=ROOT, text=True).split()[0]
        self.change(theirs, commit=first)
        done = command_here("reproduce", "theirs", "--code", "trust=[code.diff]")
        assert_refused(done, here, f"commit {first}", f"{COMMANDS} trust", "would be run")

    def test_a_run_that_somebody_else_recorded(self, command_here, here, theirs, monkeypatch):
        """With the commit that is checked out here."""
        monkeypatch.setenv("XDG_STATE_HOME", str(here / "another"))
        assert_refused(command_here("reproduce", "theirs", "--code"), here, "was not recorded by you")

    def test_changes_over_a_commit(self, command_here, here, theirs):
        theirs.code_diff.write_bytes(b"diff --git a/run.py b/run.py\n")
        self.change(theirs)
        assert_refused(command_here("reproduce", "theirs", "--code"), here, "with code.diff would be run")

    @pytest.mark.parametrize("commit", ["--upload-pack=touch mark", "HEAD", "main", "$(touch mark)", "0" * 39, None])
    def test_what_is_no_commit(self, command_here, here, theirs, commit):
        self.change(theirs, commit=commit)
        assert_refused(command_here("reproduce", "theirs", "--code"), here, "was not recorded in a git repository")


def test_nothing_of_a_refused_folder_changes(resume_here, here, config):
    folder = given(here / "theirs", config | {"loss": {"_target_": "os.system"}})
    before = snapshot(folder)
    assert_refused(resume_here("theirs"), here)
    assert snapshot(folder) == before
