import pytest

from manyheads.runner.loop.header import about, left_on_the_table
from tests.in_process import config


def test_what_the_user_says_of_a_run_is_shown_where_he_says_it():
    said = {"name": "first", "tags": ["baseline", "small"], "notes": "as in the paper\x1b[2J"}
    assert about(said) == {"name": "first", "tags": "baseline, small", "notes": "as in the paper\\x1b[2J"}
    assert about({"name": None, "tags": [], "notes": None}) == about({"seed": 1}) == {}


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ((), "usually with precision=bf16, trainer.channels_last=true, trainer.compile=default (all of them: "),
        (("precision=amp", "trainer.compile=reduce-overhead"), "usually with trainer.channels_last=true"),
        (("experiment=fast",), None),
    ],
)
def test_on_a_gpu_it_says_what_would_be_faster(overrides, says):
    run = config(*overrides)
    assert left_on_the_table(run) == {}
    run["trainer"]["device"] = "cuda"
    assert left_on_the_table(run).get("faster", "").startswith(says or "")
    assert bool(left_on_the_table(run)) is bool(says)
