"""Run as root, as CI does, the files of another user are real; otherwise those tests are skipped."""

import os

import pytest

from manyheads.runner.machine.ownership import is_mine

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to another user")


@pytest.fixture
def project(tmp_path):
    """A folder below one that everybody may write to, with the sticky bit, as /tmp."""
    shared = tmp_path / "shared"
    (shared / "me" / "project").mkdir(parents=True, mode=0o755)
    shared.chmod(0o1777)
    (shared / "me" / "project" / "net.py").touch(mode=0o644)
    return shared / "me" / "project"


def test_the_users_own_below_a_sticky_folder(project):
    assert is_mine(project)
    assert is_mine(project / "net.py")
    assert not is_mine(project.parent.parent)  # anybody can add a file
    assert not is_mine(project / "missing.py")


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_not_a_folder_that_others_write_to(project, mode):
    project.chmod(mode)
    assert not is_mine(project)
    assert is_mine(project / "net.py") == bool(mode & 0o1000)


def test_a_group_of_the_users_own_may_write(project):
    project.chmod(0o775)
    assert is_mine(project)


@as_root
def test_a_group_with_other_members_may_not(project):
    os.chown(project, 0, NOBODY)
    assert is_mine(project)
    project.chmod(0o775)
    assert not is_mine(project)
    assert not is_mine(project / "net.py")


@as_root
def test_not_what_another_user_owns_on_the_way(project):
    os.chown(project.parent, NOBODY, NOBODY)
    assert not is_mine(project)


@as_root
def test_not_through_another_users_link(project):
    link = project.parent.parent / "link"
    link.symlink_to(project)
    assert is_mine(link)
    os.lchown(link, NOBODY, NOBODY)
    assert not is_mine(link)
    assert is_mine(project)


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert not is_mine(tmp_path / "a")
