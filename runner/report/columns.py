"""A column of a comparison's tables."""

from collections.abc import Callable
from dataclasses import dataclass

from manyheads.runner.records.keys import titles
from manyheads.runner.records.shown_metric import NONE, ShownMetric, number, shown_value
from manyheads.runner.report.comparison import Comparison
from manyheads.runner.report.rows import ReportRow

Value = str | float | int | None


@dataclass(frozen=True)
class Column:
    """One column. ``value``: the full value, for files and sorting; ``text``: as shown; ``about``: its meaning."""

    name: str
    title: str
    value: Callable[[ReportRow], Value]
    text: Callable[[ReportRow], str]
    about: str = ""
    is_number: bool = True


def words(name: str, title: str, value: Callable[[ReportRow], str], about: str = "") -> Column:
    """A column of text."""
    return Column(name, title, value, lambda row: value(row) or NONE, about, is_number=False)


def numbers(
    name: str,
    title: str,
    value: Callable[[ReportRow], float | None],
    about: str = "",
    text: Callable[[float], str] = number,
) -> Column:
    """A column of numbers, formatted by ``text``."""
    return Column(name, title, value, lambda row: NONE if (cell := value(row)) is None else text(cell), about)


def shown_columns(comparison: Comparison) -> list[Column]:
    """The columns of a table: the job, its swept keys, and each measure that any row has, the metric first."""
    keys = [_of_key(key, title) for key, title in titles(comparison.swept).items()]
    metric, (objective, _, runs) = _metric(comparison)[0], _objective(comparison)
    several = [runs] if any(row.measures.runs > 1 for row in comparison.rows) else []
    quality = [metric, *several] if comparison.races else [objective, *several, metric]
    measures = [*quality, *SPEED, *RESULT]
    if not comparison.races and len({row.measures.ranks for row in comparison.completed}) < 2:
        measures = [column for column in measures if column.name != "ranks"]
    measures = [column for column in measures if any(column.value(row) not in (None, "") for row in comparison.rows)]
    if len({HELD.text(row) for row in comparison.rows if row.measures.held}) > 1:
        measures.append(HELD)
    if objective not in measures and metric not in measures:
        measures += [OBJECTIVE] if any(OBJECTIVE.value(row) is not None for row in comparison.rows) else []
    states = [STATE] if any(row.state != "completed" for row in comparison.rows) else []
    first = [column for column in measures if column in quality]  # what a narrow window shows besides the keys
    others = [column for column in measures if column not in quality]
    return [JOB, *keys, *first, *states, *others, *([MARKS] if any(row.marks for row in comparison.rows) else [])]


def file_columns(comparison: Comparison) -> list[Column]:
    """The columns of comparison.csv: everything."""
    keys = [_of_key(key, key) for key in comparison.swept]
    metric, *details = _metric(comparison)
    columns = [JOB, *keys, STATE, *SPEED, metric, *RESULT, *EXTREMES, *details, *DETAILS, OBJECTIVE, MARKS, HELD]
    return [*columns, *_objective(comparison), JOBS]


def seconds(row: ReportRow) -> str:
    """``0.612 (0.601–0.913)``: the median with the lowest and highest."""
    measures = row.measures
    if measures.low is None or measures.high is None or measures.low == measures.high:
        return number(measures.seconds)
    return f"{number(measures.seconds)} ({number(measures.low)}–{number(measures.high)})"


def median(row: ReportRow) -> str:
    """Seconds per epoch without their spread."""
    return number(row.measures.seconds)


def _range(values: tuple[float, ...]) -> str:
    """The lowest and the highest value, or the only one."""
    lowest, highest = number(min(values, default=None)), number(max(values, default=None))
    return highest if lowest == highest else f"{lowest}–{highest}"


def _metric(comparison: Comparison) -> list[Column]:
    """The columns of the task's metric: mean and standard deviation over repeats, and the best epoch's value."""
    metric = comparison.metric
    mean, deviation = (lambda row: row.measures.metric), (lambda row: row.measures.metric_spread)
    return [
        _mean(metric, metric.column, metric.label, mean, deviation, "on validation data, after the last epoch"),
        numbers(f"{metric.column}_std", f"± {metric.label}", deviation),
        numbers(f"best_{metric.column}", f"best {metric.label}", lambda r: r.measures.best_metric),
    ]


def _objective(comparison: Comparison) -> list[Column]:
    """The columns of the objective, which rows are sorted by: mean and standard deviation over seeds and folds."""
    objective = comparison.objective
    mean, deviation = (lambda row: row.measures.objective), (lambda row: row.measures.objective_spread)
    about = "the objective on validation data, in each run's best epoch"
    return [
        _mean(objective, "objective_mean", f"best {objective.label}", mean, deviation, about),
        numbers("objective_std", f"± best {objective.label}", deviation),
        RUNS,
    ]


def _mean(
    metric: ShownMetric,
    name: str,
    title: str,
    mean: Callable[[ReportRow], float | None],
    deviation: Callable[[ReportRow], float | None],
    about: str,
) -> Column:
    about = f"{about}; of several runs the mean ± the standard deviation"
    return Column(name, title, mean, lambda row: shown_value(metric, mean(row), deviation(row)), about)


def _digest(row: ReportRow) -> str:
    digest = row.digest or NONE
    return digest[:8] if len(digest) == 64 else digest.removeprefix("one for each of ")


def _of_key(key: str, title: str) -> Column:
    return words(key, title, lambda row: row.values.get(key, ""), about=key)


def _numbers_of(row: ReportRow) -> str:
    """``0, 4, 8``: the jobs that the row averages."""
    jobs = row.numbers
    return ", ".join(jobs if len(jobs) <= MOST_JOBS else [*jobs[: MOST_JOBS - 1], f"… {jobs[-1]}"])


def _of_runs(row: ReportRow) -> str:
    """``2 of 3`` if one did not complete: only completed jobs are averaged."""
    return f"{row.measures.runs}" + (f" of {len(row.jobs)}" if row.measures.runs < len(row.jobs) else "")


MOST_JOBS = 4
JOB = Column(
    "job",
    "job",
    lambda row: row.number,
    _numbers_of,
    "the job's number in the sweep; for an average, the number of each job",
)
JOBS = words("jobs", "jobs", lambda row: " ".join(row.numbers))
RUNS = Column("runs", "n", lambda row: row.measures.runs, _of_runs, "number of completed runs averaged in the row")
STATE = words("state", "status", lambda row: row.state)
MARKS = words("marks", "remarks", lambda row: ", ".join(row.marks))
OBJECTIVE = numbers("objective", "objective", lambda r: r.first.objective)
SPEED = [
    numbers("ranks", "ranks", lambda r: r.measures.ranks, text=str),
    Column(
        "seconds_per_epoch",
        "s/epoch",
        lambda r: r.measures.seconds,
        seconds,
        "median (lowest–highest) over epochs or runs, without the first epoch, evaluation and checkpoints",
    ),
    numbers(
        "samples_per_second", "samples/s", lambda r: r.measures.throughput, "training throughput of all ranks together"
    ),
    numbers(
        "speed_up",
        "speed-up",
        lambda r: r.speed_up,
        "the baseline's seconds per epoch divided by the job's",
        "{:.2f} x".format,
    ),
    numbers(
        "scaling_efficiency",
        "efficiency",
        lambda r: r.efficiency,
        "samples/s per rank relative to the baseline's",
        lambda efficiency: f"{100 * efficiency:.0f} %",
    ),
    numbers(
        "data_share",
        "data",
        lambda r: r.measures.data_share,
        "fraction of the training time spent waiting for data",
        lambda share: f"{100 * share:.1f} %",
    ),
    Column(
        "peak_memory_mb",
        "memory MB",
        lambda r: max(r.measures.memory, default=None),
        lambda r: _range(r.measures.memory),
        "peak memory, lowest–highest across devices; on CPUs, of each rank's process",
    ),
]
HELD = Column(
    "held_mb",
    "held MB",
    lambda r: max(r.measures.held, default=None),
    lambda r: _range(r.measures.held),
    "parameters and optimizer state between two updates, lowest–highest across ranks",
)
RESULT = [
    numbers("val_loss", "val loss", lambda r: r.measures.loss, "after the last epoch; of several runs the mean"),
    Column("weights", "weights", lambda r: r.digest or "", _digest, "SHA-256 of the final weights", is_number=False),
]
EXTREMES = [
    numbers("seconds_per_epoch_low", "lowest s/epoch", lambda r: r.measures.low),
    numbers("seconds_per_epoch_high", "highest s/epoch", lambda r: r.measures.high),
    numbers("lowest_peak_memory_mb", "lowest memory MB", lambda r: min(r.measures.memory, default=None)),
]
DETAILS = [
    numbers("train_loss", "train loss", lambda r: r.measures.train_loss),
    numbers("train_seconds", "train s", lambda r: r.measures.train_seconds),
    numbers("devices", "devices", lambda r: r.measures.devices),
    numbers("prediction_error", "prediction", lambda r: None if r.predicted is None else r.predicted.error),
    numbers("repeats", "repeats", lambda r: len(r.jobs)),
    words("baseline", "baseline", lambda row: row.baseline or ""),
    words("losses", "losses", lambda row: row.losses),
    words("folder", "folder", lambda row: str(row.first.run.folder)),
]
