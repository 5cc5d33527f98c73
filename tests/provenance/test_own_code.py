"""Which files of the user's own run, and at which commit they are."""

import subprocess

import pytest

from manyheads.runner.provenance.kept_files import keep_files
from manyheads.runner.provenance.own_code import in_words, own_code, own_files, own_origin
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config


class TestOwnCode:
    """A package beside the working directory, of which nothing is imported."""

    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "my_package" / "nets").mkdir(parents=True)
        (tmp_path / "my_package" / "nets" / "net.py").write_text("class Net: ...\nraise RuntimeError('imported')")
        return tmp_path / "my_package"

    @staticmethod
    def digests():
        return own_code(config("model=custom", "model._target_=my_package.nets.net.Net"))

    @pytest.mark.parametrize("is_package", [True, False])
    def test_is_noticed_when_it_changes(self, package, is_package):
        if is_package:
            (package / "__init__.py").write_text("raise RuntimeError('imported')")
        before = self.digests()
        assert "my_package" in before
        (package / "nets" / "net.py").write_text("class Net: ...  # changed")
        assert self.digests() != before

    def test_may_be_a_module(self, package):
        (package.parent / "mine.py").write_text("class Net: ...")
        found = own_code(config("model=custom", "model._target_=mine.Net"))
        assert list(found) == [f"{package.parent}/mine.py", "mine"]

    def test_is_not_torch_nor_this_project(self):
        assert own_code(config("loss._target_=torch.nn.MSELoss")) == {}

    def test_may_not_be_there(self):
        assert own_code(config("model=custom", "model._target_=nowhere.Net")) == {}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project whose net.py imports some of its other files."""
    folder = tmp_path / "project"
    files = {
        "net.py": "import torch, json, blocks\nfrom parts.heads import Head\nfrom parts import tails, nothing\n",
        "blocks.py": "try:\n    import sizes\nexcept ImportError: pass\n",
        "sizes.py": "import net\n",
        "json.py": "",
        "unused.py": "",
        "secret.txt": "",
        "parts/__init__.py": "",
        "parts/heads.py": "from .deep import inner\nfrom . import beside\n",
        "parts/tails.py": "def broken(",
        "parts/beside.py": "",
        "parts/unused.py": "",
        "parts/deep/inner.py": "",
        "conf/model/mine.yaml": "",
        "conf/notes.txt": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    return folder


def of(target: str) -> dict:
    return {"model": {"_target_": target}}


def names(here, target: str) -> list[str]:
    return [str(path.relative_to(here)) for path in own_files(of(target))]


PARTS = ["parts/__init__.py", "parts/beside.py", "parts/deep/inner.py", "parts/heads.py"]


def test_what_a_file_imports(here):
    assert names(here, f"{here}/net.py:Net") == ["blocks.py", "net.py", *PARTS, "parts/tails.py", "sizes.py"]
    assert names(here, "parts.heads.Head") == PARTS
    assert names(here, "torch.nn.Linear") == []


def test_configs_that_were_read(here):
    assert "conf/model/mine.yaml" not in names(here, "parts.heads.Head")
    seal.trust(here / "conf", None)
    assert names(here, "torch.nn.Linear") == ["conf/model/mine.yaml"]


def test_copies(here, tmp_path):
    folder = RunFolder(tmp_path / "run")
    kept = keep_files(folder, of(f"{here}/net.py:Net"))
    assert {str(path.relative_to(folder.path)) for path in folder.code.rglob("*.*")} == kept.keys()
    assert (folder.code / here.relative_to("/") / "blocks.py").read_bytes() == kept[f"code{here}/blocks.py"]
    assert len(kept) == 8


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)


class TestWhoseCommit:
    def test_outside_git(self, here):
        own = own_origin(of(f"{here}/net.py:Net"))
        assert own == {"folder": str(here), "commit": None, "clean": None}
        assert in_words({"own": own}) == f"{here}: not in git"

    def test_in_the_user_s_repository(self, here):
        git(here, "init", "-q")
        git(here, "add", ".")
        git(here, "commit", "-qm", "first")
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=here, text=True).strip()
        own = own_origin(of("parts.heads.Head"))
        assert own == {"folder": str(here / "parts"), "commit": commit, "clean": True}
        (here / "blocks.py").write_text("# changed")
        own = own_origin(of(f"{here}/net.py:Net"))
        assert own == {"folder": str(here), "commit": commit, "clean": False}
        assert in_words({"own": own}) == f"{here}: commit {commit[:10]}, with uncommitted changes"

    def test_a_filter_of_the_repository_is_not_run(self, here, tmp_path):
        git(here, "init", "-q")
        git(here, "add", ".")
        git(here, "commit", "-qm", "first")
        (here / ".gitattributes").write_text("*.py filter=evil\n")
        git(here, "config", "filter.evil.clean", f"touch {tmp_path}/executed; cat")
        (here / "net.py").write_text((here / "net.py").read_text())  # at another time, so git would read it
        assert own_origin(of(f"{here}/net.py:Net"))["clean"] is True
        assert not (tmp_path / "executed").exists()

    def test_a_new_file_is_a_change_once_git_tracks_it(self, here):
        git(here, "init", "-q")
        git(here, "add", "blocks.py")
        git(here, "commit", "-qm", "first")
        git(here, "add", ".")
        own = own_origin(of(f"{here}/net.py:Net"))
        assert own["commit"] is not None
        assert own["clean"] is False

    @pytest.mark.parametrize(("tracked", "clean"), [("net.py", False), ("notes.txt", None)])
    def test_one_that_git_does_not_track_is_a_change_unless_it_tracks_none(self, here, tracked, clean):
        (here / "notes.txt").touch()
        git(here, "init", "-q")
        git(here, "add", tracked)
        git(here, "commit", "-qm", "first")
        own = own_origin(of(f"{here}/net.py:Net"))
        assert (own["commit"] is None, own["clean"]) == (clean is None, clean)

    def test_no_own_code(self, here):
        assert own_origin(of("torch.nn.Linear")) is None
        assert in_words({}) == in_words({"own": None}) == ""
