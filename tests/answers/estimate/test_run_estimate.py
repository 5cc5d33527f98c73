"""``python -m runner estimate``: its tables, its picture, its JSON, and what it refuses, as a run would."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from manyheads.runner.answers.estimate.print_estimate import digits, readable, show
from manyheads.runner.answers.estimate.run_estimate import draw, estimate, estimated, plan
from manyheads.runner.answers.measure.findings import DeviceMemory, Estimate, RankHolds, Traffic
from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.origin import Origin
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.json_schema import to_json
from tests.tail import tail, tailed

TEXT = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "data.batch_size=16")
GPT = ("model=gpt", *TEXT)
IMAGES = ("data=synthetic", "data.image_size=8", "data.num_classes=3", "data.train_samples=64", "data.batch_size=8")
GB = 10**9


def one(*overrides: str) -> Estimate:
    (planned,) = plan(CommandLine.of(overrides, None), Origin())
    return estimated(planned)


def holds(size: int, rank: int = 0, **other: int) -> RankHolds:
    traffic = {"all-gather": Traffic(65, 2 * size), "reduce-scatter": Traffic(33, size)}
    measured = {"activations": 3 * size, "activations_then": 2 * size, "most": 9 * size, **other}
    return RankHolds(rank, size, size, 2 * size, 0, 0, traffic=traffic, **measured)


SWEEP = [
    Estimate(f"parallel={name}", name, 64, "64 ranks", 1, (holds(size * GB), holds(size * GB, 63, most=8 * size * GB)))
    for size, name in enumerate(("single", "ddp", "zero1", "fsdp", "tensor", "pipeline", "mesh"), 1)
]


def shown(found: list[Estimate], width: int, device: DeviceMemory | None = None) -> str:
    printed = StringIO()
    show(found, device, console=Console(width=width, highlight=False, force_terminal=False, file=printed))
    return printed.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_tables_are_whole_in_a_narrow_and_a_wide_terminal(width: int) -> None:
    refused = Estimate("parallel=dp", "dp", reason="launcher.nproc_per_node=64: parallel=dp runs in one process.")
    text = shown([*SWEEP, refused], width, DeviceMemory(30 * GB))
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("zero1", "~activations", "27.0", "65: 8.00", "yes", "no", "reduce-scatter", "in one process"):
        assert word in " ".join(text.split())
    assert "single: across ranks: ~peak 8.00 GB to 9.00 GB" in " ".join(text.split())


def test_a_size_has_three_digits_and_a_unit() -> None:
    assert [readable(size) for size in (12, 1_234, 99_960, 26_900_000_000)] == ["12 B", "1.23 kB", "100 kB", "26.9 GB"]
    assert [digits(value) for value in (0, 0.123, 12.34, 1234.5)] == ["0", "0.12", "12.3", "1,234"]


def test_the_picture_shows_every_kind_and_the_device() -> None:
    svg = draw(SWEEP, DeviceMemory(80 * GB), form="svg")
    png = draw(SWEEP, None, form="png")
    assert svg is not None
    assert png is not None
    assert png.startswith(b"\x89PNG")
    for text in (
        "pipeline",
        "optimizer state",
        "activations",
        "workspace",
        "all-gather",
        "GB that the largest rank holds at its peak; red: the device's 80.0 GB",
    ):
        assert f"<!-- {text}".encode() in svg
    assert draw([Estimate("parallel=dp", "dp", reason="no")], None, form="png") is None


def test_a_sweep_has_a_row_for_each_and_json_has_bytes() -> None:
    swept = ["model=small_cnn", *IMAGES, "parallel=single,ddp", "optimizer=sgd,adamw", "launcher.nproc_per_node=1"]
    answer = estimate(swept, device_memory="10kB")
    assert answer.exit_code == 3
    found = to_json(answer)
    assert found.keys() == {"estimates", "device_bytes"}
    assert [each["label"] for each in found["estimates"]] == [
        f"parallel={parallel} optimizer={optimizer}" for parallel in ("single", "ddp") for optimizer in ("sgd", "adamw")
    ]
    assert found["device_bytes"] == 10_000
    sgd, adamw, *_ = (each["holds"][0] for each in found["estimates"])
    assert sgd["optimizer"] == sgd["parameters"] == sgd["gradients"]
    assert adamw["optimizer"] == pytest.approx(2 * sgd["optimizer"], rel=0.01)
    assert sgd["total"] == sum(sgd["parts"].values())


def test_a_combination_that_a_run_refuses_is_a_row_with_its_reason() -> None:
    kept = [each for each in IMAGES if not each.startswith("data.batch_size")]
    swept = ["parallel=single,ddp", "data.batch_size=33", "launcher.nproc_per_node=2"]
    answer = estimate(["model=small_cnn", *kept, *swept])
    assert answer.exit_code == 0
    single, ddp = answer.estimates
    assert single.ranks == 1
    assert "data.batch_size=33" in ddp.refused


def test_a_model_of_the_user_s_own() -> None:
    largest = one("model=custom", "model._target_=tests.answers.estimate.models.Wide", *IMAGES).largest
    assert largest.parameters == 4 * (192 * 32 + 32 + 32 * 3 + 3)
    assert largest.activations
    assert not largest.stops


@pytest.mark.parametrize("strategy", tailed(["single", "fsdp"], always=["fsdp"]))
def test_a_model_that_looks_at_values_is_told_where_it_stops(strategy: str) -> None:
    ranks = 1 if strategy == "single" else 2
    overrides = ("model=custom", *IMAGES, "optimizer=adamw", f"parallel={strategy}", f"launcher.nproc_per_node={ranks}")
    found = one(*overrides, "model._target_=tests.answers.estimate.models.Undecided").largest
    followed = one(*overrides, "model._target_=tests.answers.estimate.models.Wide").largest
    assert found.stops.startswith("inner (")
    assert "depends on the values in its tensors" in found.stops
    assert found.activations is found.most is found.traffic is None
    for kind in ("parameters", "gradients", "optimizer"):
        assert getattr(found, kind) == getattr(followed, kind) > 0
    text = shown([Estimate("", strategy, ranks, holds=(found,))], 80, DeviceMemory(80 * GB))
    assert "the model stops in inner" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model.size=70b",), "model.size"),
        (
            ("parallel=tensor", "launcher.nproc_per_node=4"),
            "has 6 heads, which can't be divided among 4 ranks. Numbers of ranks that work: 2",
        ),
        (("parallel=mesh", "parallel.tensor=3", "launcher.nproc_per_node=4"), "does not fit 4 ranks"),
        (("parallel=fsdp", "launcher.nproc_per_node=3"), "can't be divided among 3"),
        (
            ("parallel=pipeline", "launcher.nproc_per_node=32", "parallel.schedule=gpipe"),
            "too few for 32 stages",
        ),
        (("hydra.job.name=x",), "starts no runs"),
        (("parallel=fspd",), "fsdp"),
    ],
)
def test_mistakes_are_told_as_a_run_tells_them(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        one(*GPT, *overrides)
    assert message in str(raised.value)


@pytest.mark.parametrize("size", ["80 apples", "-1GB", "0GB", "GB"])
def test_a_size_of_memory_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(ConfigurationError, match="--device-memory"):
        estimate(["parallel=single"], device_memory=size)


def test_a_picture_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must end in \.png or \.svg"):
        estimate(["parallel=single"], picture="estimate.pdf")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [tail("fsdp")])
def test_seven_billion_parameters_on_64_ranks_take_a_minute_and_two_gigabytes(tmp_path: Path, strategy: str) -> None:
    command = [sys.executable, "-c", MEASURED, *(f"parallel={strategy}", "launcher.nproc_per_node=64")]
    text = ("model=gpt", "model.size=7b", "task=language_model", "data=stdlib_text", "data.block_size=2048")
    done = subprocess.run(
        [*command, *text, "data.batch_size=64", "optimizer=adamw", "--json"],
        cwd=CONF.parent, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = done.stderr.rpartition("used ")[2]  # stdout has the answer and nothing else
    peak, seconds = measured.split()
    assert int(peak) < 2 * GB
    assert float(seconds) < 60  # of a core: others may be using this machine
    found = json.loads(done.stdout)["result"]["estimates"][0]
    assert found["holds"][0]["parameters"] == pytest.approx(6.44e9 * 4 / 64, rel=0.01)
    assert found["holds"][0]["traffic"]["all-gather"]["calls"] == 65


MEASURED = """
import resource, sys
from manyheads.runner.app import main
code = main(["estimate", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_SELF)
print("used", used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def test_one_process_is_compared_with_two() -> None:
    words = ["model=mlp", "parallel=single,ddp", "launcher.nproc_per_node=2"]
    planned = plan(CommandLine.of(words, None), Origin())
    assert [each.run.launcher.ranks if each.run else each.reason for each in planned] == [1, 2]
    with pytest.raises(ConfigurationError, match="parallel=single runs in one process"):
        plan(CommandLine.of(["parallel=single", "launcher.nproc_per_node=2"], None), Origin())
