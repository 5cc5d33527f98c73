"""The queue's folder: order, who may write to it, and what is left when the disk is full."""

import errno
import os

import pytest

from manyheads.launchers.flags.queue import entries
from manyheads.launchers.flags.queue.entries import QUEUE, RunQueue, mark, status_of
from manyheads.runner.commands.queue import add, cancel, move_first
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.run_folder import RunFolder
from tests.conftest import held
from tests.launchers.flags.queue.conftest import frozen, in_queue, queued


def change(what, run: RunFolder) -> None:
    with RunQueue.created() as queue, queue.turn():
        what(queue, run)


def test_order_and_changes(desk):
    a, b, c = queued("a", "b", "c")
    change(move_first, c)
    change(move_first, b)
    change(move_first, b)
    assert in_queue() == ["b", "c", "a"]
    change(cancel, c)
    assert (in_queue(), status_of(c)) == (["b", "a"], "interrupted")
    change(add, c)
    assert (in_queue(), [status_of(run) for run in (a, b, c)]) == (["b", "a", "c"], ["queued"] * 3)


def test_a_run_is_taken_until_all_copies_of_its_descriptor_are_closed(desk):
    (run,) = queued("a")
    with RunQueue.created() as queue:
        with queue.turn():
            descriptor = queue.take(next(queue.entries()))
        copy = os.dup(descriptor)
        for open_one in (descriptor, copy):
            with queue.turn():
                assert next(queue.entries()).is_taken
                with pytest.raises(ConfigurationError, match="has been taken by a worker"):
                    move_first(queue, run)
            os.close(open_one)
        with queue.turn():
            assert not next(queue.entries()).is_taken


def test_what_cannot_be_changed_is_refused(desk):
    (run,) = queued("a")
    other = frozen("b")
    for what, one, why in (
        (add, run, "is in the queue already"),
        (cancel, other, "is not in the queue"),
        (move_first, other, "is not in the queue"),
        (add, frozen("c", devices="any"), "was started without launcher.devices=free"),
        (add, RunFolder("outputs"), "is not a run of yours"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            change(what, one)
    with held(other), pytest.raises(ConfigurationError, match="is being run by another process"):
        change(add, other)
    mark(other, "failed")
    with pytest.raises(ConfigurationError, match="has ended: failed"):
        change(add, other)
    assert in_queue() == ["a"]


def test_a_folder_of_others_is_refused(desk, monkeypatch):
    queued("a")
    QUEUE.chmod(0o770)
    with pytest.raises(ConfigurationError, match="has the mode 770, not 700"):
        RunQueue.created()
    QUEUE.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigurationError, match=f"outputs/.queue, .* belongs to user {os.getuid()}, not to you"):
        RunQueue.existing()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("step", ["write_whole", "mark"])
def test_a_disk_that_cannot_be_written_leaves_the_queue_as_it_was(number, step, desk, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number), "the disk")

    (_, run) = queued("a")[0], frozen("b")
    monkeypatch.setattr(entries, step, refuse)
    with pytest.raises(OSError, match="the disk"):
        change(add, run)
    assert (in_queue(), status_of(run)) == (["a"], None)
