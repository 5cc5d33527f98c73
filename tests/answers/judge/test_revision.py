"""``judge --code``: base runs a revision of the user's repository, without what that repository could execute."""

import hashlib
import subprocess
import sys
import zlib

import pytest

from manyheads.runner.answers.judge.rank.at_revision import AtRevision
from manyheads.runner.answers.judge.revision import Revision
from manyheads.runner.errors import ConfigurationError
from tests.answers.judge.test_judge import COMMAND
from tests.conftest import execute

NET = """
import time
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.ReLU(), nn.Linear(16, num_classes))

    def forward(self, images):
        time.sleep(PAUSE)
        return super().forward(images)
"""


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository whose model was slow when it was committed; with a filter and a monitor that leave a file."""
    folder = tmp_path / "project"
    (folder / "mine").mkdir(parents=True)
    git(folder, "init", "--quiet", ".")
    for name in ("mine/__init__.py", "mine/net.py", "filed.py"):
        (folder / name).write_text(NET.replace("PAUSE", "0.01"))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "slow")
    for name in ("mine/net.py", "filed.py"):
        (folder / name).write_text(NET.replace("PAUSE", "0"))
    (folder / ".gitattributes").write_text("*.py filter=evil\n")
    for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"):
        git(folder, "config", key, f"touch {tmp_path}/executed; cat")
    monkeypatch.chdir(folder)
    return folder


def test_the_files_of_a_revision_are_those_that_were_committed_and_nothing_of_the_repository_runs(project, tmp_path):
    revision = Revision.named("HEAD")
    assert revision.changed_files() == ["filed.py", "mine/net.py"]
    with revision.files() as base:
        assert (base.tree / "mine/net.py").read_text() == NET.replace("PAUSE", "0.01")
        config = {"model": {"_target_": f"{project}/filed.py:Net"}, "data": {"root": f"{project}/data"}}
        redirected = {"model": {"_target_": f"{base.tree}/filed.py:Net"}, "data": {"root": f"{project}/data"}}
        assert base.redirected(config) == redirected
    assert not base.tree.exists()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("protocol", ["file", "ext"])
def test_objects_that_a_repository_lacks_are_not_fetched_by_a_program_that_it_names(project, tmp_path, protocol):
    name = subprocess.run(["git", "rev-parse", "HEAD:filed.py"], cwd=project, capture_output=True, text=True).stdout
    (project / ".git/objects" / name[:2] / name[2:].strip()).unlink()
    run = f"touch {tmp_path}/executed; false"
    url = {"file": ".", "ext": f"ext::sh -c 'touch% {tmp_path}/executed'"}[protocol]
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "evil",
        "remote.evil.promisor": "true",
        "remote.evil.url": url,
        "remote.evil.uploadpack": run,
        f"protocol.{protocol}.allow": "always",
    }.items():
        git(project, "config", key, value)
    revision = Revision.named("HEAD")
    assert revision.changed_files() == ["filed.py", "mine/net.py"]
    with pytest.raises(ConfigurationError, match="lacks the content of filed.py"), revision.files():
        pass
    assert not (tmp_path / "executed").exists()


def test_the_revision_is_found_through_a_link_to_the_project(project, tmp_path, monkeypatch):
    (tmp_path / "linked").symlink_to(project)
    with Revision.named("HEAD").files() as base:
        config = {"model": {"_target_": f"{tmp_path}/linked/filed.py:Net"}}
        assert base.redirected(config) == {"model": {"_target_": f"{base.tree}/filed.py:Net"}}
        monkeypatch.syspath_prepend(tmp_path / "linked")
        assert AtRevision(base.folders(NAMED), str(project)).find_spec("mine").origin.startswith(str(base.tree))


NAMED = {"model": {"_target_": "mine.net.Net"}}


def test_only_packages_of_the_project_are_imported_from_the_revision(project):
    with Revision.named("HEAD").files() as base:
        finder = AtRevision(base.folders(NAMED), str(project))
        assert finder.find_spec("mine").origin == str(base.tree / "mine/__init__.py")
        assert finder.find_spec("numpy") is None
        assert finder.find_spec("json") is None


def test_nothing_is_imported_from_the_revision_if_the_config_names_no_code_of_it(project):
    """Whatever libraries try to import would be found there."""
    with Revision.named("HEAD").files() as base:
        named = {"model": {"_target_": f"{base.tree}/filed.py:Net"}}
        assert base.folders(named) == base.folders(NAMED) != []
        for target in ("torch.nn.Identity", "/elsewhere/filed.py:Net"):
            assert base.folders({"model": {"_target_": target}}) == []


def test_packages_of_an_environment_within_the_project_are_not_imported_from_the_revision(project, monkeypatch):
    place = project / ".venv/lib/python3/site-packages"
    for folder in (place / "library", project / "library"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    git(project, "add", "library")
    git(project, "commit", "--quiet", "-m", "library")
    monkeypatch.syspath_prepend(place)
    with Revision.named("HEAD").files() as base:
        assert AtRevision(base.folders(NAMED), str(project)).find_spec("library") is None


@pytest.mark.parametrize(
    ("name", "said"), [("HEAD~5", "has no such revision"), ("--help", "has no such revision"), ("HEAD", "no file")]
)
def test_what_is_not_a_question_about_code_is_refused(project, name, said):
    for path in ("mine/net.py", "filed.py"):
        (project / path).write_text(NET.replace("PAUSE", "0.01"))
    with pytest.raises(ConfigurationError, match=said):
        Revision.named(name).changed_files()


def test_a_change_of_the_projects_own_configs_is_refused(project):
    (project / "conf").mkdir()
    (project / "conf/a.yaml").write_text("seed: 1\n")
    git(project, "config", "--unset", "filter.evil.clean")
    git(project, "add", "conf")
    git(project, "commit", "--quiet", "-m", "conf")
    (project / "conf/a.yaml").write_text("seed: 2\n")
    with pytest.raises(ConfigurationError, match="conf/a.yaml differs too"):
        Revision.named("HEAD").changed_files()


def test_files_that_are_new_since_the_revision_are_named_and_data_are_not(project, tmp_path):
    for name in ("mine/new.py", "staged.txt", "data.csv", "ignored.py"):
        (project / name).write_text("NEW = True\n")
    (project / ".gitignore").write_text("ignored.py\n")
    (project / "outputs/run/code").mkdir(parents=True)
    for name in ("run.yaml", "code/net.py"):
        (project / "outputs/run" / name).write_text("")
    git(project, "config", "--unset", "filter.evil.clean")
    git(project, "add", "staged.txt")
    (tmp_path / "executed").unlink(missing_ok=True)
    assert Revision.named("HEAD").changed_files() == ["filed.py", "mine/net.py", "mine/new.py", "staged.txt"]
    assert not (tmp_path / "executed").exists()


@pytest.mark.tail
@pytest.mark.slow
@pytest.mark.parametrize("model", [["model=filed.py:Net"], ["model=custom", "model._target_=mine.net.Net"]])
def test_the_working_tree_is_judged_against_a_revision_and_nothing_of_the_repository_runs(project, tmp_path, model):
    settings = ("data=digits", "launcher=spawn", "launcher.threads_per_rank=1", "trainer.device=cpu")
    words = (*model, *settings, "data.num_workers=0", "--code", "HEAD", "--budget", "4m")
    done = execute(*COMMAND, *words, cwd=project, timeout=280)
    assert done.code == 0, done.out + done.err
    assert "filed.py: not as in the revision" in done.out
    (judgement,) = project.glob("outputs/judgements/*/judgement.json")
    assert execute(sys.executable, "-m", "manyheads.runner", "judge", "--check", str(judgement), cwd=project).code == 0
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("entries", [("100644 a", "40000 a"), ("40000 a", "100644 a"), (f"100644 {'n' * 300}.py",)])
def test_a_revision_whose_files_cannot_all_be_written_is_refused_in_words(project, entries):
    """Git itself would create none such."""
    blob = stored(project, "blob", b"")
    names = {"100644": blob, "40000": stored(project, "tree", b"100644 b.py\0" + bytes.fromhex(blob))}
    tree = b"".join(each.encode() + b"\0" + bytes.fromhex(names[each.split()[0]]) for each in entries)
    about = f"tree {stored(project, 'tree', tree)}\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nmessage\n"
    revision = Revision.named(stored(project, "commit", about.encode()))
    assert revision.changed_files()
    with pytest.raises(ConfigurationError, match=r"cannot be written: .*\.$"), revision.files():
        pass


def stored(project, kind, content):
    """The name of a new object, whatever it holds."""
    content = f"{kind} {len(content)}\0".encode() + content
    name = hashlib.sha1(content).hexdigest()
    path = project / ".git/objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(content))
    return name
