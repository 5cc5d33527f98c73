"""Networks and devices of the package and of the user, and mistakes in their files."""

from pathlib import Path

import pytest

from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.errors import ConfigurationError
from tests.conftest import ROOT


def test_all_of_the_package_can_be_read_and_are_plausible() -> None:
    networks = {name: catalog.network(name) for name in catalog.names(catalog.NETWORKS)}
    assert {"1gbe", "10gbe", "25gbe", "100gbe", "ib-edr", "ib-hdr"} <= networks.keys()
    assert all(1e8 <= each.bandwidth <= 1e12 and each.latency < 1e-3 for each in networks.values())
    devices = {name: catalog.device(name) for name in catalog.names(catalog.DEVICES)}
    assert {"v100-sxm", "a100-sxm-40gb", "h100-sxm"} <= devices.keys()
    assert all(each.memory >= 12e9 and 1 <= each.per_machine <= 16 for each in devices.values())


def test_the_documentation_lists_them() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    for name in (*catalog.names(catalog.NETWORKS), *catalog.names(catalog.DEVICES)):
        assert f"`{name}`" in text


def test_one_of_the_users_own_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("bandwidth: 3e9\nlatency: 2e-5\ncurve: [[1000, 0.1], [1e6, 0.9]]\nalgorithms: [hierarchical]\n")
    link = catalog.network(str(path))
    assert (link.bandwidth, link.curve, link.algorithms) == (3e9, ((1e3, 0.1), (1e6, 0.9)), ("hierarchical",))


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("bandwith: 3e9\nlatency: 1e-5", "bandwith", "Did you mean bandwidth"),
        ("bandwidth: 3e9", "latency", "is missing"),
        ("bandwidth: fast\nlatency: 1e-5", "bandwidth", "a number above 0"),
        ("bandwidth: 3e9\nlatency: -1", "latency", "a number above 0"),
        ("bandwidth: .inf\nlatency: 1e-5", "bandwidth", "a number above 0"),
        ("bandwidth: 3e9\nlatency: 1e-5\nalgorithms: [star]", "algorithms", "ring, tree, hierarchical"),
        ("bandwidth: 3e9\nlatency: 1e-5\ncurve: [[9, 1], [8, 1]]", "curve", "ascending"),
        ("bandwidth: 3e9\nlatency: 1e-5\ncurve: [1, 2]", "curve", "pairs of bytes"),
        ("- 3e9", "--network", "has no keys"),
        ("a: [", "--network", "cannot be read"),
    ],
)
def test_a_mistake_in_a_network_file_names_the_key(tmp_path: Path, text: str, key: str, words: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words) as refused:
        catalog.network(str(path))
    assert refused.value.key == key
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("memory: 8e9\nper_machine: 2.5\nlink: {bandwidth: 1e9, latency: 1e-6}", "per_machine"),
        ("memory: 8e9\nper_machine: 2\nlink: {bandwidth: 1e9, latancy: 1e-6}", "link.latancy"),
        ("memory: 8e9\nper_machine: 2\nlink: nvlink", "link"),
        ("memory: 8e9\nper_machine: 2", "link"),
    ],
)
def test_a_mistake_in_a_device_file_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        catalog.device(str(path))
    assert refused.value.key == key


def test_an_unknown_name_lists_what_is_known() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 100gbe") as refused:
        catalog.network("100gbit")
    assert "ib-hdr" in refused.value.allowed
    with pytest.raises(ConfigurationError, match="cannot be read"):
        catalog.network("nowhere.yaml")
