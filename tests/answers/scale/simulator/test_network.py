"""Times of collectives: what their algorithms say by hand, and what was published of real ones."""

import pytest

from manyheads.runner.answers.scale.simulator import catalog
from manyheads.runner.answers.scale.simulator.network import ALGORITHMS, Cluster, Group, Link, Path

MIB = 2**20
PLAIN = Link(latency=1e-6, bandwidth=1e9, achieved=1.0, start=0.0, algorithms=("ring",))
SLOW = Link(latency=1e-5, bandwidth=1e8, achieved=1.0, start=0.0, algorithms=("ring",))


def test_a_ring_sends_each_byte_twice_around() -> None:
    cluster = Cluster(8, PLAIN, SLOW)
    found = cluster.seconds("all-reduce", 8e6, Group(8), devices=8)
    assert found == pytest.approx(2 * 7 * 1e-6 + 2 * 7 / 8 * 8e6 / 1e9)
    half = cluster.seconds("reduce-scatter", 8e6, Group(8), devices=8)
    assert half == cluster.seconds("all-gather", 8e6, Group(8), devices=8) == pytest.approx(found / 2)


def test_between_machines_the_network_decides() -> None:
    cluster = Cluster(4, PLAIN, SLOW)
    found = cluster.seconds("all-reduce", 8e6, Group(8), devices=8)
    assert found == pytest.approx(2 * (6 * 1e-6 + 1e-5) + 2 * 7 / 8 * 8e6 / 1e8)


def test_groups_that_cross_machines_at_once_share_the_network() -> None:
    """With tensor groups inside a machine, each of its devices is in another group of replicas."""
    cluster = Cluster(4, PLAIN, SLOW)
    assert cluster.spread(Group(4), devices=8) == (4, 1, 1.0)
    assert cluster.spread(Group(2, 4), devices=8) == (1, 2, 4.0)
    alone = cluster.seconds("all-reduce", 8e6, Group(2, 1), devices=8)
    assert cluster.seconds("all-reduce", 8e6, Group(2, 4), devices=8) > 39 * alone


def test_one_rank_and_no_bytes_take_no_time() -> None:
    cluster = Cluster(4, PLAIN, SLOW)
    assert cluster.seconds("all-reduce", 8e6, Group(1), devices=8) == 0
    assert cluster.seconds("all-reduce", 0, Group(8), devices=8) == 0


def test_each_algorithm_is_the_fastest_somewhere() -> None:
    """Trees have the fewest hops, rings send the fewest bytes, and a hierarchy the fewest between machines."""

    def fastest(machines: int, payload: float) -> str:
        path = Path(8, machines, PLAIN, SLOW, payload)
        return min(ALGORITHMS, key=lambda name: ALGORITHMS[name](path))

    assert fastest(64, 1e3) == "tree"
    assert fastest(2, 1e9) == "hierarchical"
    ring, tree = (ALGORITHMS[name](Path(8, 1, PLAIN, SLOW, 1e9)) for name in ("ring", "tree"))
    assert ring < tree


def test_a_curve_is_followed_between_its_points_and_constant_outside() -> None:
    link = Link(1e-6, 1e9, curve=((1e3, 0.1), (1e5, 0.5)))
    assert [link.rate(size) for size in (1, 1e3, 1e4, 1e5, 1e9)] == pytest.approx([1e8, 1e8, 3e8, 5e8, 5e8])


@pytest.mark.parametrize(
    ("ranks", "mebibytes", "measured"),
    [
        *[(2, 1, 44.2e-6), (2, 8, 86.9e-6), (2, 64, 404.7e-6), (2, 256, 1455.8e-6)],
        *[(4, 1, 51.4e-6), (4, 8, 116.8e-6), (4, 64, 543.8e-6), (4, 256, 1929e-6)],
        *[(8, 1, 92.8e-6), (8, 8, 134.3e-6), (8, 64, 579.9e-6), (8, 256, 2162.3e-6)],
    ],
)
def test_all_reduce_on_a100_takes_about_what_was_measured(ranks: int, mebibytes: int, measured: float) -> None:
    """Source: vTrain, trace/a100 (https://github.com/VIA-Research/vTrain). The constants were fitted to these."""
    found = catalog.cluster(catalog.device("a100-sxm-40gb"), PLAIN)
    predicted = found.seconds("all-reduce", mebibytes * MIB, Group(ranks), devices=ranks)
    assert predicted == pytest.approx(measured, rel=0.25)
