"""Where ranks cannot meet, by torch's real store."""

import socket

import pytest

from manyheads.launchers.foreign.stores import store_of
from manyheads.launchers.foreign.world import World
from manyheads.runner.errors import ConfigurationError

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("rank", "listens", "said"),
    [
        (0, True, "another program listens on that port of this machine"),
        pytest.param(1, False, "rank 1 cannot reach the other ranks there", marks=pytest.mark.tail),
    ],
)
def test_a_stale_port_is_refused(rank: int, listens: bool, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        world = World("RANK and WORLD_SIZE", rank, 2, 0, 1, address="127.0.0.1", port=port)
        with store_of(world, seconds=1) as store, pytest.raises(ConfigurationError) as caught:
            store.get("folder")
    assert said in str(caught.value)
    assert str(port) in str(caught.value)
