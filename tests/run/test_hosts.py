"""The machines of a run, listed or in a file."""

import pytest

from manyheads.launchers.launcher_option import LauncherOption
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.hosts import count_nodes, read_hosts
from tests.in_process import config, ranks

ALLOWED = r"each machine once, with the same number of ranks on every machine\.$"


@pytest.fixture
def hostfile(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "hosts").write_text(text)
        return str(tmp_path / "hosts")

    return write


def test_without_any_it_is_this_machine():
    assert read_hosts(None, None) == {}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["node1:4"], {"node1": 4}),
        (["b:2", "a.example.org:2", "10.0.0.1:2"], {"b": 2, "a.example.org": 2, "10.0.0.1": 2}),
        ([" node1:1 "], {"node1": 1}),
    ],
)
def test_a_list(hosts, expected):
    assert list(read_hosts(hosts, None).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1 slots=4\n", {"node1": 4}),
        ("b slots=2\na slots = 2\n", {"b": 2, "a": 2}),
        ("# two machines\n\n  node1\tslots=2  \n   # and\nnode2 slots=2", {"node1": 2, "node2": 2}),
        ("node1 slots=2  # the old one\n", {"node1": 2}),
    ],
)
def test_a_file(hostfile, text, expected):
    assert list(read_hosts(None, hostfile(text)).items()) == list(expected.items())


def test_a_file_in_the_users_home(hostfile, tmp_path, monkeypatch):
    hostfile("node1 slots=2")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_hosts(None, "~/hosts") == {"node1": 2}


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        ["node1"],
        ["node1:"],
        [":2"],
        ["node1:two"],
        ["node1:-1"],
        ["node1:0"],
        ["node1:2", "node2:4"],
        ["node1:2", "node1:2"],
        ["node1:2", "node2"],
        ["node1:2,node2:2"],
        ["node 1:2"],
        ["-oProxyCommand=touch_mark:2"],
        ["[-oProxyCommand=touch_mark]:2"],
    ],
    ids=str,
)
def test_a_wrong_list_is_refused(hosts):
    with pytest.raises(
        ConfigurationError, match=r"^launcher\.hosts: .* Allowed: \[name:slots,name:slots\], " + ALLOWED
    ):
        read_hosts(hosts, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing else\n",
        "node1\n",
        "node1:2\n",
        "node1 slots=0\n",
        "node1 slots=2 max_slots=4\n",
        "node1 slots=2\nnode2 slots=3\n",
        "node1 slots=2\nnode1 slots=2\n",
        "node1 slots=2\nnode2\n",
        "\0\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    ],
)
def test_a_wrong_file_is_refused(hostfile, text):
    path = hostfile(text)
    with pytest.raises(ConfigurationError, match=rf"^launcher\.hostfile={path}: .* name slots=2, " + ALLOWED):
        read_hosts(None, path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "hosts").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=ALLOWED):
        read_hosts(None, str(tmp_path / "hosts"))


@pytest.mark.parametrize(("name", "reason"), [("absent", "No such file or directory"), (".", "Is a directory")])
def test_a_missing_file_is_refused(tmp_path, name, reason):
    path = f"{tmp_path}/{name}"
    with pytest.raises(ConfigurationError, match=rf"^launcher\.hostfile={path}: {reason}\. Name a file\.$"):
        read_hosts(None, path)


def test_both_are_refused(hostfile):
    path = hostfile("node1 slots=2")
    with pytest.raises(ConfigurationError, match=r"hosts is set too\. Set one of them to null\.$"):
        read_hosts(["node1:2"], path)


@pytest.mark.parametrize(
    ("launcher", "expected"),
    [
        ({}, None),
        ({"hosts": ["localhost:2"]}, None),
        ({"hosts": ["node1:2", "node2:2"]}, (2, 2)),
        ({"hosts": ["[fd77::1]:2", "localhost:2"], "nodes": "1:2"}, (1, 2)),
        ({"nodes": 2, "rendezvous": "node1:29400"}, (2, 2)),
        ({"nodes": "1:4", "rendezvous": "node1:29400"}, (1, 4)),
    ],
)
def test_how_many_machines(launcher, expected):
    option = LauncherOption({"nproc_per_node": 2, "rendezvous": None, **launcher})
    assert count_nodes(option.nodes, option.machines) == expected
    assert option.ranks == 2 * (expected or (1, 1))[1]


@pytest.mark.parametrize(
    ("launcher", "reason"),
    [
        ({"nodes": 2}, r"the machines have no meeting point\. Set launcher\.rendezvous"),
        ({"rendezvous": "node1:29400"}, r"launcher\.rendezvous needs launcher\.nodes"),
        ({"nodes": 2, "rendezvous": "a:1", "hosts": ["a:1", "b:1"]}, "hosts is set too"),
        ({"nodes": "3:2", "rendezvous": "a:1"}, r"nodes=3:2 is not allowed\. Allowed: a number, or fewest:most"),
        ({"nodes": "0:2", "rendezvous": "a:1"}, "is not allowed"),
        ({"nodes": "1:3", "hosts": ["a:1", "b:1"]}, "the number listed there: 2"),
    ],
)
def test_numbers_of_machines_that_mean_nothing(launcher, reason):
    with pytest.raises(ConfigurationError, match=reason):
        LauncherOption({"rendezvous": None, **launcher}).check_keys()


def test_an_engine_knows_where_its_machines_are():
    assert count_nodes(3, {}) == (3, 3)


def test_hosts_of_any_launcher_are_frozen():
    frozen = config("parallel=ddp", "launcher=torchrun", "launcher.hosts=[node1:2,node2:2]")
    assert ranks(frozen) == 4
    assert frozen["launcher"]["nproc_per_node"] == 2
