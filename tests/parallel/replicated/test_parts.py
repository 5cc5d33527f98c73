"""What exactness rests on, part by part: shares drawn late, sums of shares, rows that were missed, refusals."""

import threading
from datetime import timedelta

import pytest
import torch

from manyheads.runner.config.complete import unavailable
from manyheads.runner.logger.csv.keeping import Keeping
from manyheads.runner.logger.csv.rank import Recorder
from manyheads.runner.loop.micro_steps import MicroSteps
from manyheads.runner.machine.addresses import free_port
from manyheads.runner.run.errors import ConfigurationError
from tests.in_process import config, small, train

SMALL = ("precision=fp64", "data.batch_size=26", "data.train_samples=208", "trainer.grad_accumulation=2")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return train(tmp_path_factory.mktemp("parts") / "run", small(*SMALL, "trainer.max_steps=2"))


def test_shares_drawn_late_are_the_global_batch(session):
    loader = session.trainer.train
    whole = [index for batch in loader.drawn([], 3, share=0, of=1) for index in batch.ids]
    parts = [loader.drawn([], 3, share=share, of=3) for share in range(3)]
    assert sorted(index for part in parts for batch in part for index in batch.ids) == sorted(whole)
    assert sum(batch.count for part in parts for batch in part) == 26
    again = loader.drawn(parts[2], 3, share=2, of=3)
    assert again is parts[2]
    assert loader.drawn(parts[2], 3, share=1, of=3) is not parts[2]
    loader.drawn([], 3, share=0, of=1)


def test_what_shares_come_to_adds_up_to_the_batch(session):
    update, loader = session.trainer.update, session.trainer.train
    steps = MicroSteps(update, [])

    def row(share: int, of: int) -> torch.Tensor:
        batches = loader.drawn([], 5, share=share, of=of)
        return steps.flattened([steps(batch, last=batch is batches[-1]) for batch in batches])

    torch.testing.assert_close(row(0, 3) + row(1, 3) + row(2, 3), row(0, 1), rtol=1e-12, atol=1e-12)
    passed = steps.unflattened(row(0, 1))
    assert passed.samples == 26
    statistics = update.scores.add_up([passed.observed, passed.observed])
    torch.testing.assert_close(update.scores.flatten(statistics), 2 * row(0, 1)[3:])


def test_rows_that_were_missed_are_taken_from_another():
    class Written(Recorder):
        def __init__(self):
            self.steps = []

        def step(self, row):
            self.steps.append(row["step"])

    other, written = Keeping(Recorder()), Written()
    for step in (1, 2, 3, 4):
        other.step({"step": step})
    Keeping(written).catch_up(other.kept(), after=2)
    assert written.steps == [3, 4]


def test_it_is_started_only_by_who_says_so():
    assert "trusted_network" in (unavailable("parallel", "replicated") or "") or unavailable("launcher", "torchft")
    with pytest.raises(ConfigurationError, match="no authentication|not installed"):
        config("parallel=replicated")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("launcher=spawn", "launcher=spawn stops all ranks when one dies"),
        ("trainer.sam_rho=0.05", "trainer.sam_rho"),
        ("checkpoint.format=sharded", "checkpoint.format=sharded"),
        ("launcher.hang_timeout=29", "launcher.hang_timeout=29 is too short"),
    ],
)
def test_what_it_does_not_go_with_is_refused(override, message):
    pytest.importorskip("torchft")
    with pytest.raises(ConfigurationError, match=message):
        config("parallel=replicated", "parallel.trusted_network=true", override)


def test_its_launcher_is_for_it_alone():
    pytest.importorskip("torchft")
    with pytest.raises(ConfigurationError, match="parallel=ddp can't handle"):
        config("parallel=ddp", "launcher=torchft")


def test_an_update_that_two_made_apart_has_one_history(tmp_path, monkeypatch):
    """One committed it and was cut off; the other made it again: both are at the same step, with other weights."""
    coordination = pytest.importorskip("torchft.coordination")
    from manyheads.runner.parallel.replicated.rank.membership import LIGHTHOUSE, PLACE, Membership

    place = f"127.0.0.1:{free_port('127.0.0.1')}"
    server = coordination.LighthouseServer(bind=place, min_replicas=2, join_timeout_ms=5000, quorum_tick_ms=20)
    monkeypatch.setenv(LIGHTHOUSE, f"http://{place}")
    monkeypatch.setenv(PLACE, str(tmp_path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    outcomes = {}

    def update(replica: int, history: int) -> None:
        members = Membership(replica, timeout=5, standing=dict, step=5)
        members._history = history
        members.enter(bool)
        try:
            members.compare(members.add(members.history))
            outcomes[replica] = members.commit()
        except RuntimeError as error:
            outcomes[replica] = str(error)
        members.close()

    threads = [threading.Thread(target=update, args=given) for given in ((0, 7), (1, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert outcomes == {0: False, 1: "the others have made an update again that this replica had made before."}
    server.shutdown()


def test_a_state_that_took_too_long_is_written_once(tmp_path):
    """Else a large one would be written again for each repetition of the update, and never be read."""
    pytest.importorskip("torchft")
    from manyheads.runner.parallel.replicated.rank.healing import FolderTransport

    sender, receiver = FolderTransport(tmp_path, 0), FolderTransport(tmp_path, 1)
    second = timedelta(seconds=1)
    sender.send_checkpoint([1], 5, {"written": 1}, second)
    sender.disallow_checkpoint()
    sender.send_checkpoint([1], 5, {"written": 2}, second)
    assert receiver.recv_checkpoint(0, sender.metadata(), 5, second) == {"written": 1}
    sender.send_checkpoint([1], 6, {"written": 3}, second)
    assert [path.name for path in tmp_path.iterdir()] == ["replica_0_step_6.pt"]
    sender.forget()
    with pytest.raises(TimeoutError, match="did not arrive within 0.1 seconds"):
        receiver.recv_checkpoint(0, sender.metadata(), 6, second / 10)
