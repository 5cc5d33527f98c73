"""Where control groups are mounted, read from files as the kernel writes them."""

from pathlib import Path

import pytest

from manyheads.runner.machine.control_groups import Hierarchy, cpu_hierarchies

TMPFS = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755"
CPU = "32 31 0:29 / {mount} rw,relatime shared:9 - cgroup cgroup rw,{options}"
UNIFIED = "41 31 0:38 {root} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
FIRST, SECOND = Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup")


def found(folder: Path, groups: list[str], mounts: list[str]) -> list[Hierarchy]:
    (folder / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    (folder / "mountinfo").write_text("".join(f"{line}\n" for line in [TMPFS, *mounts]))
    return [*cpu_hierarchies(folder)]


def test_of_the_first_version_it_is_the_mount_with_the_cpu_controller(tmp_path: Path) -> None:
    mounts = [CPU.format(mount="/sys/fs/cgroup/memory", options="memory")]
    mounts.append(CPU.format(mount=FIRST, options="cpu,cpuacct"))
    groups = ["9:name=systemd:/user.slice", "4:memory:/other", "2:cpu,cpuacct:/user.slice/session-1.scope"]
    (only,) = found(tmp_path, groups, mounts)
    assert only == Hierarchy(1, FIRST, FIRST / "user.slice/session-1.scope")
    assert only.above == [FIRST / "user.slice", FIRST]


def test_the_second_version_has_one_hierarchy(tmp_path: Path) -> None:
    (only,) = found(tmp_path, ["0::/user.slice/a.scope"], [UNIFIED.format(root="/", mount=SECOND)])
    assert only == Hierarchy(2, SECOND, SECOND / "user.slice/a.scope")


def test_of_both_the_first_comes_first(tmp_path: Path) -> None:
    mounts = [UNIFIED.format(root="/", mount="/sys/fs/cgroup/unified"), CPU.format(mount=FIRST, options="cpu,cpuacct")]
    assert [each.version for each in found(tmp_path, ["2:cpu,cpuacct:/", "0::/"], mounts)] == [1, 2]


@pytest.mark.parametrize(
    ("root", "path", "own"),
    [
        ("/", "/", ""),
        ("/docker/1f", "/docker/1f", ""),  # a container without a namespace of groups
        ("/docker/1f", "/docker/1f/inner", "inner"),
        ("/docker/1f", "/elsewhere", ""),
        ("/", "/../../outside", ""),  # the group is above those that this namespace shows
    ],
)
def test_in_a_container_the_groups_that_are_mounted_are_the_topmost(
    tmp_path: Path, root: str, path: str, own: str
) -> None:
    (only,) = found(tmp_path, [f"0::{path}"], [UNIFIED.format(root=root, mount=SECOND)])
    assert only.own == SECOND / own
    assert only.above == [SECOND]


def test_a_mount_point_may_have_a_space(tmp_path: Path) -> None:
    (only,) = found(tmp_path, ["0::/"], [UNIFIED.format(root="/", mount=r"/mnt/my\040groups")])
    assert only.mount == Path("/mnt/my groups")


def test_without_any_there_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, ["0::/"], []) == []
    assert [*cpu_hierarchies(tmp_path / "nowhere")] == []
    assert found(tmp_path, ["nonsense"], ["more nonsense"]) == []
