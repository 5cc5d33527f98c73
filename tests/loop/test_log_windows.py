"""How soon ranks exchange what they know: also in the middle of a window whose updates are slow."""

import signal
import time

import pytest
from torch import nn

from tests.in_process import opened, small


@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_a_run_stops_within_a_second_or_after_the_update(tmp_path, seconds: float) -> None:
    """Not only where a row is written."""
    options = small("trainer.log_every=1000", "trainer.epochs=50", "logger=[]")
    with opened(tmp_path, options) as trainer:
        asked: list[float] = []

        def asks(_: nn.Module, __: object) -> None:
            time.sleep(seconds)
            if trainer.progress.step == 3 and not asked:
                trainer.heartbeat.stop_signal = signal.SIGTERM
                asked.append(time.monotonic())

        trainer.update.model.register_forward_pre_hook(asks)
        trainer.fit(lambda **_: None, due_after_step=lambda _: False)
        late = time.monotonic() - asked[0]
    assert trainer.stop.signal == signal.SIGTERM
    assert late < 2 + seconds
    if seconds:
        assert trainer.progress.step <= 3 + 1 + 1 / seconds
