"""Messages between parent and agents: who has no key learns nothing, starts nothing, ends nothing."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from manyheads.launchers.nodes import rendezvous, wire
from manyheads.launchers.nodes.link import ParentLink
from manyheads.launchers.nodes.node_agent import connect
from manyheads.launchers.nodes.rendezvous import Meeting
from manyheads.launchers.nodes.wire import Channel, ProtocolError, admit, greet, new_key

KEY, OTHER = b"k" * wire.KEY_BYTES, b"o" * wire.KEY_BYTES


def both(agents: bytes, parents: bytes) -> tuple[Channel | Exception, Channel | Exception]:
    """What the two sides of a connection get whose keys are these."""
    ends = socket.socketpair()
    got: list[Channel | Exception] = [ProtocolError("nothing"), ProtocolError("nothing")]

    def meet(index: int, side: Callable[[socket.socket, bytes], Channel], key: bytes) -> None:
        try:
            got[index] = side(ends[index], key)
        except OSError as error:
            got[index] = error
            ends[index].close()

    sides = [(greet, agents), (admit, parents)]
    threads = [threading.Thread(target=meet, args=(n, *each)) for n, each in enumerate(sides)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got[0], got[1]


@pytest.fixture(autouse=True)
def _unix_sockets(monkeypatch):
    """Pairs of sockets know no TCP option."""
    monkeypatch.setattr(wire.socket, "TCP_NODELAY", socket.SO_REUSEADDR)
    monkeypatch.setattr(wire.socket, "IPPROTO_TCP", socket.SOL_SOCKET)


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    agent, parent = both(KEY, KEY)
    assert isinstance(agent, Channel)
    assert isinstance(parent, Channel)
    yield agent, parent
    agent.close()
    parent.close()


def test_both_ways(channels):
    agent, parent = channels
    for number in range(3):
        agent.send({"is": "status", "number": number})
        parent.send({"do": "alive", "text": "ä" * number})
        assert parent.receive() == {"is": "status", "number": number}
        assert agent.receive() == {"do": "alive", "text": "ä" * number}


@pytest.mark.parametrize(("agents", "parents"), [(KEY, OTHER), (OTHER, KEY), (b"", KEY), (KEY, b"short")])
def test_another_key_is_refused_on_both_sides(agents, parents):
    got = both(agents, parents)
    assert all(isinstance(each, ConnectionError) for each in got), got


def refused(listener: socket.socket) -> None:
    with pytest.raises(ConnectionError):
        admit(listener, KEY)


def test_who_listens_proves_nothing_to_a_stranger():
    """A code over a text of the stranger's own choosing would help him elsewhere."""
    stranger, listener = socket.socketpair()
    thread = threading.Thread(target=refused, args=(listener,))
    thread.start()
    greeting = stranger.recv(1000)
    assert len(greeting) == len(wire._MAGIC) + wire.KEY_BYTES
    stranger.sendall(wire._MAGIC + bytes(wire.KEY_BYTES) + bytes(wire._CODE))
    thread.join()
    listener.close()
    assert stranger.recv(1000) == b""
    stranger.close()


def test_a_proof_cannot_be_sent_back(monkeypatch):
    """The listener's own words, as of an agent: it would have to prove the agent's part first."""
    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 0.2)
    mirror, listener = socket.socketpair()

    def reflect() -> None:
        with suppress(OSError):
            while data := mirror.recv(1000):
                mirror.sendall(data)

    thread = threading.Thread(target=reflect)
    thread.start()
    with pytest.raises(TimeoutError):
        admit(listener, KEY)
    listener.close()
    thread.join()
    mirror.close()


def raw(agent: Channel, content: bytes, number: int) -> bytes:
    return struct.pack("!I", len(content)) + wire._code(agent._key, b"agent", number, content) + content


@pytest.mark.parametrize("how", ["forged", "repeated", "left out", "reflected", "too long", "no object"])
def test_a_message_that_nobody_sent(channels, how):
    agent, parent = channels
    good = raw(agent, b'{"is": "status"}', 0)
    agent._socket.sendall(good)
    assert parent.receive() == {"is": "status"}
    content = b'{"is": "ended"}'
    bad = {
        "forged": raw(agent, content, 1)[:-2] + b"!}",
        "repeated": good,
        "left out": raw(agent, content, 2),
        "reflected": struct.pack("!I", len(content)) + wire._code(agent._key, b"parent", 1, content) + content,
        "too long": struct.pack("!I", wire.MOST_BYTES + 1),
        "no object": raw(agent, b'["is"]', 1),
    }[how]
    agent._socket.sendall(bad)
    with pytest.raises(ProtocolError):
        parent.receive()


def test_the_longest_message(channels):
    with pytest.raises(ValueError, match="the limit is"):
        channels[0].send({"text": "a" * wire.MOST_BYTES})


def test_a_key_is_its_owners_alone(tmp_path: Path):
    assert len(new_key(tmp_path / "key")) == wire.KEY_BYTES
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        new_key(tmp_path / "key")
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    with pytest.raises(FileExistsError):
        new_key(tmp_path / "link")


def test_strangers_do_not_keep_others_out():
    """Some say nothing, some talk nonsense, and an agent with the key comes in all the same."""
    meeting = Meeting("127.0.0.1", 0, KEY)
    strangers = [socket.create_connection((meeting.address, meeting.port)) for _ in range(5)]
    try:
        strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        strangers[1].sendall(bytes(100_000))
        channel = greet(socket.create_connection((meeting.address, meeting.port)), KEY)
        described = {"name": "node1", "host": "node1", "address": "127.0.0.1", "port": 1}
        channel.send({"is": "node", **described})
        node = meeting.next_arrival(5)
        assert node is not None
        assert (node.name, node.address) == ("node1", "127.0.0.1")
        assert meeting.next_arrival(0.1) is None
        channel.close()
        assert meeting.inbox.get(timeout=5) == (node, None)
    finally:
        meeting.close()
        for stranger in strangers:
            stranger.close()


class TestManyStrangers:
    @pytest.fixture
    def meeting(self) -> Iterator[Meeting]:
        meeting = Meeting("127.0.0.1", 0, KEY)
        yield meeting
        meeting.close()

    def crowd(self, meeting: Meeting, *, source: str = "127.0.0.1") -> list[socket.socket]:
        """More idle connections than the parent keeps; it has seen them all when it has dropped the first ones."""
        place = (meeting.address, meeting.port)
        crowd = [
            socket.create_connection(place, source_address=(source, 0)) for _ in range(rendezvous.MOST_STRANGERS + 5)
        ]
        for one in crowd[:5]:
            one.settimeout(20)
            while one.recv(1000):
                pass
        return crowd

    def test_who_has_the_key_comes_in_past_idle_ones(self, meeting):
        crowd = self.crowd(meeting)
        for _ in range(10):
            greet(socket.create_connection((meeting.address, meeting.port)), KEY).close()
        for one in crowd:
            one.close()

    def test_the_address_with_the_most_is_dropped_first(self, meeting):
        waiting = socket.create_connection((meeting.address, meeting.port))
        crowd = self.crowd(meeting, source="127.0.0.2")
        greet(waiting, KEY).close()
        for one in crowd:
            one.close()

    def test_who_sends_a_byte_at_a_time_is_dropped(self, monkeypatch):
        monkeypatch.setattr(rendezvous, "STRANGER_SECONDS", 0.2)
        meeting = Meeting("127.0.0.1", 0, KEY)
        slow = socket.create_connection((meeting.address, meeting.port))
        slow.settimeout(0.05)
        deadline, is_open = time.monotonic() + 20, True
        while is_open and time.monotonic() < deadline:
            with suppress(TimeoutError):
                try:
                    slow.sendall(b"m")
                    is_open = slow.recv(1000) != b""
                except ConnectionError:
                    is_open = False
        meeting.close()
        slow.close()
        assert not is_open

    def test_an_agent_that_was_dropped_tries_again(self, meeting, monkeypatch):
        dropped = []

        def reluctant(connection: socket.socket, key: bytes) -> Channel:
            if len(dropped) < 2:
                dropped.append(connection)
                raise ConnectionResetError
            return admit(connection, key)

        monkeypatch.setattr("manyheads.launchers.nodes.rendezvous.wire.admit", reluctant)
        connect(meeting.address, meeting.port, KEY, silence=5).close()
        assert len(dropped) == 2


def test_a_machine_that_waits_for_its_part_is_heard(monkeypatch):
    """One that comes while others train has nothing to say for a long time, and must not count as lost then."""
    monkeypatch.setattr("manyheads.launchers.nodes.rendezvous.ALIVE_SECONDS", 0.02)
    with ExitStack() as stack:
        meeting = Meeting("127.0.0.1", 0, KEY)
        stack.callback(meeting.close)
        link = ParentLink(greet(socket.create_connection((meeting.address, meeting.port)), KEY), silence=5)
        stack.callback(link.close)
        link.send({"is": "node", "name": "node1", "host": "node1", "address": "127.0.0.1", "port": 1})
        node = meeting.next_arrival(5)
        assert node is not None
        came = node.heard
        deadline = time.monotonic() + 5
        while node.heard - came < 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert meeting.inbox.empty()
        assert not link.is_lost
