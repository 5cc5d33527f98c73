"""Spikes in one process: which updates stand out, what is done with them, and what is left of that in a checkpoint."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from manyheads.runner.checkpoint.rank.checkpoints import CheckpointStore
from manyheads.runner.data.keys import permutation
from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.loop.guards.guard import Restart
from manyheads.runner.loop.guards.spikes import MOST, Spikes, limit_of
from manyheads.runner.loop.session import work
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.parallel.rank.passes import ForwardResult
from manyheads.runner.parallel.rank.single import Single
from manyheads.runner.run.heartbeat import Heartbeat
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import TIMINGS, attempt, rows, small, train, typed, weights
from tests.loop.test_session import Killed, die_after
from tests.loop.test_trainer import assert_same, by_hand
from tests.optional_wings import audit
from tests.zoo import Glaring

ALONE = Single(rank=0, local_rank=0, world_size=1, device_type="cpu")
ORDER = np.concatenate([permutation(160, seed=1, epoch=epoch) for epoch in range(2)])  # 20 updates of 8 samples, twice
GLARING = int(ORDER[8 * 16])  # of update 17
UPDATES = [1 + at // 8 for at in np.flatnonzero(ORDER == GLARING).tolist()]  # 17, and one of the second epoch
DATA = ("data=custom", "data._target_=tests.zoo.Glaring", f"+data.at=[{GLARING}]", "data.num_workers=0")
LOOKS = (*DATA, "data.batch_size=8", "trainer.spike_window=10", "optimizer.weight_decay=0.0005")
# By whether the precision skips updates whose gradients overflow.
PLAIN, SCALED = (SimpleNamespace(precision=SimpleNamespace(skips_overflow=skips)) for skips in (False, True))


def judged(losses: list[float], norms: list[float] | None = None, **settings) -> list[str]:
    """What stands out in each of these updates."""
    spikes = Spikes(ALONE, **{"action": "skip", "window": 10, "threshold": 5, **settings})
    found = []
    for step, (loss, norm) in enumerate(zip(losses, norms or [1.0] * len(losses), strict=True), 1):
        passed = ForwardResult(torch.tensor(loss), 8, 8, 8, None)
        spike = spikes.reject(PLAIN, step, [passed], torch.tensor(norm))
        found.append("" if spike is None else spike.reason)
    return found


USUAL = [1.0, 1.2, 0.9, 1.1, 1.0, 0.8, 1.0, 1.1, 0.9, 1.0]


def test_the_limit_is_the_median_plus_scaled_absolute_deviations():
    assert limit_of([-1, 0, 1, 2, 100], 2) == pytest.approx(1 + 2 * 1.4826)
    assert limit_of([100, 101, 102, 103, 1e9], 2) == pytest.approx(
        102 + 2 * 1.4826, rel=1e-3
    )  # so narrow, both are alike
    assert limit_of([0.01, 0.1, 1, 10, 100], 2) == pytest.approx(10 ** (2 * 1.4826))
    assert limit_of([1e-300, 1e300] * 5, 50) < math.inf
    assert limit_of([2.0] * 10, 5) == pytest.approx(2.1)  # of what never varies, a hundredth counts as usual


def test_an_update_stands_out_once_there_are_enough_before_it():
    assert judged([*USUAL, 5.0, 1.0]) == [""] * 10 + ["loss", ""]
    assert judged([*USUAL[:9], 5.0, 1.0]) == [""] * 11
    assert judged([*USUAL, 1.0], [*USUAL, 9.0]) == [""] * 10 + ["grad_norm"]


def test_what_is_no_number_stands_out_at_once_and_changes_no_limit():
    assert judged([math.nan, 1.0], [1.0, math.inf]) == ["nan", "nan"]
    assert judged([*USUAL, math.inf, 5.0, 1.0]) == [""] * 10 + ["nan", "loss", ""]


def test_a_fall_is_no_spike():
    assert judged([*USUAL, 0.01], [*USUAL, 0.0]) == [""] * 11


def test_an_overflow_of_scaled_gradients_is_left_to_the_scaler():
    spikes = Spikes(ALONE, action="error", window=10, threshold=5)
    passed = ForwardResult(torch.tensor(1.0), 8, 8, 8, None)
    assert spikes.reject(SCALED, 1, [passed], torch.tensor(math.inf)) is None
    with pytest.raises(
        FloatingPointError, match=r"in update 2 the loss is 1, and the norm of the gradients inf\. trainer"
    ):
        spikes.reject(PLAIN, 2, [passed], torch.tensor(math.inf))


def test_a_batch_in_which_nothing_counts_is_not_judged():
    spikes = Spikes(ALONE, action="error", window=10, threshold=5)
    nothing = ForwardResult(torch.tensor(0.0), 0, 8, 0, None)
    assert spikes.reject(PLAIN, 1, [nothing], torch.tensor(0.0)) is None


def test_a_loss_that_has_risen_for_good_ends_the_run():
    with pytest.raises(FloatingPointError, match=rf"it is the {MOST + 1}th within 20 updates: these are no outliers\."):
        judged([*USUAL, *USUAL, *[5.0] * 20], window=20)


def test_a_rollback_names_the_updates_that_led_to_the_spike():
    with pytest.raises(Restart) as caught:
        judged([*USUAL, 5.0], action="rollback", span=3)
    assert list(caught.value.memory["spikes"]) == [9, 10, 11]
    assert {spike.step for spike in caught.value.memory["spikes"].values()} == {11}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("trainer.on_nan=skip",), r"on_nan=skip and trainer\.on_spike=rollback: .*Set trainer\.on_nan=error"),
        (("checkpoint.every=0",), r"on_spike=rollback returns to a checkpoint, and checkpoint\.every=0 writes none"),
        (("parallel=local_sgd",), r"on_spike=rollback: ranks of parallel=local_sgd have weights of their own"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_run(given, said):
    with pytest.raises(ConfigurationError, match=said):
        typed("trainer.on_spike=rollback", *given)


# -- in the loop ---------------------------------------------------------------------------------------


def reference(*skipped: int) -> dict[str, torch.Tensor]:
    """The weights of a loop written by hand that skips these updates, counted from 1."""
    data = Glaring(split="train", at=[GLARING])
    images, targets = data.images, torch.tensor(data.targets)
    return by_hand(images, targets, steps=40, total=40, leave_out=[step - 1 for step in skipped])


def table(path) -> list[tuple[int, int, str]]:
    return [(int(row["step"]), int(row["spike"]), row["reason"]) for row in rows(RunFolder(path).spikes)]


def test_skip_leaves_out_the_updates_that_stand_out_and_only_those(tmp_path):
    run = train(tmp_path, small(*LOOKS, "trainer.on_spike=skip"))
    assert_same(weights(run.trainer), reference(*UPDATES))
    assert table(tmp_path) == [(step, step, "loss") for step in UPDATES]
    assert run.folder.read_result()["skipped_steps"] == 2
    assert run.folder.read_result()["samples_seen"] == 320 - 16


def test_rollback_leaves_out_what_led_to_them_too(tmp_path, capsys):
    options = (*LOOKS, "trainer.on_spike=rollback", "trainer.spike_span=3", "checkpoint.every=7")
    run = train(tmp_path, small(*options))
    first, second = UPDATES
    back = [14, (second - 1) // 7 * 7]
    expected = [range(max(to, spike - 3) + 1, spike + 1) for to, spike in zip(back, UPDATES, strict=True)]
    assert_same(weights(run.trainer), reference(*expected[0], *expected[1]))
    assert table(tmp_path) == [(step, each[-1], "loss") for each in expected for step in each]
    assert [int(row["step"]) for row in rows(run.folder.steps)] == [8, 16, 20, 24, 32, 40]
    said = run.folder.log.read_text()
    assert f"in update {first} the loss is " in said
    assert "the limit by the updates before: returning to the last checkpoint" in said
    assert f"resuming from step {back[0]}" in said
    answer = audit(tmp_path)
    assert answer.exit_code == ExitCode.DONE, answer.findings
    assert [each.update for each in answer.skipped_updates] == [step for each in expected for step in each]
    assert f"epoch 1: update {first} was skipped (loss)" in answer.lines()


def test_rollback_without_a_checkpoint_starts_over(tmp_path):
    """A real rank's work, in which a new session follows."""
    settings = small(*LOOKS, "trainer.on_spike=rollback", "trainer.spike_span=1", "trainer.max_steps=18")
    folder, run = RunFolder(tmp_path), RunConfig.of(settings)
    folder.write_config(settings)
    work(run, ALONE, folder, Heartbeat.create(folder.heartbeat, ranks=1))
    assert table(tmp_path) == [(17, 17, "loss")]
    assert folder.read_result()["steps"] == 18


def test_error_names_the_update_and_leaves_the_last_good_checkpoint(tmp_path):
    settings = small(*LOOKS, "trainer.on_spike=error", "checkpoint.every=10")
    with pytest.raises(FloatingPointError, match=r"^in update 17 the loss is .* above .*trainer\.on_spike=skip skips"):
        train(tmp_path, settings)
    assert torch.load(RunFolder(tmp_path).last_checkpoint, weights_only=True)["progress"]["step"] == 10


def test_a_nan_is_a_spike_and_teaches_nothing(tmp_path):
    rich = ("model=custom", "model._target_=tests.zoo.Rich", "+data.nan=7", "trainer.on_spike=skip")
    run = train(tmp_path, small(*LOOKS, *rich))
    assert [reason for *_, reason in table(tmp_path)].count("nan") == 2
    assert all(torch.isfinite(value).all() for value in weights(run.trainer).values())


def killed(path, settings, step) -> None:
    """A run that dies after this update, in the session after a return to a checkpoint if there is one before."""
    memory: dict = {}
    while True:
        state = CheckpointStore(RunFolder(path), every=0, keep=0).last()
        run = attempt(path, settings, state=state)
        die_after(run, step)
        try:
            run.train(seed=1, state=state, memory=memory)
        except Restart as restart:
            memory = restart.memory
        except Killed:
            return


@pytest.mark.parametrize("action", ["skip", "rollback"])
@pytest.mark.parametrize("step", [12, 19])  # before the spike, and after it; checkpoints at 7 and 14
def test_killed_and_resumed_it_does_the_same_to_the_bit(tmp_path, action, step):
    fp16 = ("precision=amp", "precision.dtype=float16", "trainer.clip_norm=0.5", "trainer.grad_accumulation=2")
    settings = small(*LOOKS, *fp16, f"trainer.on_spike={action}", "trainer.spike_span=2", "checkpoint.every=7")
    whole = train(tmp_path / "whole", settings)
    killed(tmp_path / "killed", settings, step)
    resumed = train(tmp_path / "killed", settings)
    assert_same(weights(resumed.trainer), weights(whole.trainer))
    for name in ("spikes", "steps", "samples"):
        tables = [rows(getattr(run.folder, name), without=TIMINGS) for run in (whole, resumed)]
        assert tables[0] == tables[1]


def test_an_audit_names_samples_that_were_skipped_in_another_update(tmp_path):
    train(tmp_path, small(*LOOKS, "trainer.on_spike=skip", "trainer.max_steps=18"))
    path = RunFolder(tmp_path).spikes
    other = next(sample for sample in range(160) if sample not in ORDER[128:136])
    path.write_text(path.read_text().replace(f",{GLARING} ", f",{other} "))
    (finding,) = audit(tmp_path).findings
    assert (finding.kind, finding.epoch, finding.update, finding.sample) == ("foreign", 1, 17, other)
    path.write_text(path.read_text().replace("loss", "gone"))
    with pytest.raises(ConfigurationError, match=r"spikes\.csv is damaged: a row lacks epoch, step, spike"):
        audit(tmp_path)
