"""Types of a run's JSON files, which readers can rely on, whichever version or user wrote the file."""

import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, NotRequired, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from manyheads.runner.errors import ConfigurationError

Numbers = dict[str, float | None]  # a row of a run's tables, by column; None for what was not measured
Content = TypeVar("Content")
Test = Callable[[Any], bool]


class MetricJson(TypedDict, total=False):
    """The names of a metric in reports. ``direction``: max or min; ``version``: of its definition, 1 if missing."""

    label: str
    unit: str
    direction: str
    version: int


class ScoresJson(TypedDict, total=False):
    """The measured columns. ``monitor``: the column that decides the best epoch; ``metrics``: by name.

    ``version``: of the loss, 1 if missing; ``evaluations``: by split, how evaluations are made, if not of all samples.
    """

    monitor: str
    direction: str
    version: int
    evaluations: dict[str, str]
    metrics: dict[str, MetricJson]


class SlowRankJson(TypedDict):
    """A rank that others waited for, in ``intervals`` out of ``of``. ``seconds``: how much longer it took.

    ``part``: the part of the time that was mostly longer; ``cause``: empty if unknown.
    """

    rank: int
    intervals: int
    of: int
    seconds: float
    part: str
    cause: str


class ResultJson(TypedDict, total=False):
    """result.json: the outcome of a run. Keys that are not listed belong to a command or a launcher, and are kept.

    ``metrics``, ``best``: values by column; ``best``: of the best epoch; ``objective``: the monitored value; ``time``:
    seconds of training by what they were spent on; ``peak_memory_mb``, ``reserved_memory_mb``: by device; ``files``,
    ``data_sha256``: digests by name; ``ended``: the key of ``trainer`` that ended the run before its last epoch;
    ``rank_seconds``: of the last session, by part and rank; ``evaluation``: what ``evaluate`` measured, and how.
    """

    status: str
    evaluation: dict[str, Any]
    signal: int
    error: dict[str, Any] | None
    epochs: int
    steps: int
    samples_seen: int
    world_size: int
    device: str
    parallel: str
    precision: str
    launcher: str
    train_seconds: float | None
    wall_seconds: float
    time: dict[str, float]
    samples_per_second: float | None
    peak_memory_mb: list[float] | None
    reserved_memory_mb: list[float]
    metrics: Numbers
    objective: float | None
    best: Numbers | None
    test: dict[str, Any]
    scores: ScoresJson
    weights_sha256: str | None
    files: dict[str, str]
    data_sha256: dict[str, str]
    corrupt_samples: int
    corrupt_files: list[str]
    skipped_steps: int
    evaluated: str
    ended: str
    flops_per_sample: float
    mfu: float
    parity: Any
    rank_seconds: dict[str, list[float]]
    slow_ranks: list[SlowRankJson]
    floors: dict[str, list[float]]
    units: list[list[float]]


class MachineJson(TypedDict, total=False):
    """One machine in provenance.json. ``cpu``: model, cores, and threads_per_rank if a run used it."""

    node: str
    host: str | None
    system: str | None
    cpu: dict[str, Any]
    devices: list[str] | None
    versions: dict[str, str | None]


class Fingerprint(TypedDict):
    """Digests of a run's data. ``sizes``, ``contents``: sha256 of its files' names and sizes, or their bytes.

    ``times``: sha256 of their names and the times of their last changes.
    """

    files: int
    bytes: int
    sizes: str
    contents: str | None
    times: NotRequired[str]


class PredictedJson(TypedDict, total=False):
    """What ``scale`` predicted for a run, or for one with the same updates. Times are seconds per update.

    ``subject``: a digest of what the time depends on; ``low``, ``high``: the bounds of the interval; ``batch``: samples
    per update; ``start``: the measured run's devices; ``is_alike``: whether this run has as many ranks per machine.
    """

    subject: str
    devices: int
    batch: int
    seconds: float
    low: float
    high: float
    start: int
    network: str
    device: str
    per_machine: int
    is_alike: bool
    time: float


class ProvenanceJson(MachineJson, total=False):
    """provenance.json: where a run came from, with rank 0's machine; ``nodes``: all machines, if there are several.

    ``commit``, ``clean``: of this project's checkout; ``own``: the same of the user's code, with its folder;
    ``own_code``: sha256 by package or file; ``submitted_from``: the host on which the command was typed, if it is
    another one; ``predicted``: the time per update that was predicted before the run, if any; ``weights``: of the
    checkpoint that it starts from, if any.
    """

    id: str
    command: str
    directory: str
    composed_from: str | None
    continued_from: str | None
    submitted_from: str | None
    signature: str
    commit: str | None
    clean: bool
    own: dict[str, Any] | None
    own_code: dict[str, str]
    packages: dict[str, str]
    user: str
    environment: dict[str, str]
    ranks: int
    launcher: str
    data: Fingerprint | None
    weights: Fingerprint | None
    predicted: PredictedJson | None
    nodes: list[MachineJson]


def wrong_keys(content: Mapping[str, Any], kind: type) -> list[str]:
    """Keys of a TypedDict whose values are of another type, at any depth; null has every type."""
    tests = _tests(kind)
    return [key for key, value in content.items() if key in tests and not tests[key](value)]


def right(content: Mapping[str, Any], kind: type[Content]) -> Content:
    """The content without the keys whose values do not have the type in the TypedDict."""
    wrong = wrong_keys(content, kind)
    return cast(Content, {sys.intern(key): value for key, value in content.items() if key not in wrong})


def check(content: Mapping[str, Any], kind: type[Content], path: object) -> Content:
    """The content. Raises ConfigurationError that names the first value of a wrong type."""
    for key in wrong_keys(content, kind):
        raise ConfigurationError(f"{path} cannot be read: {key} has another type. Restore it from a copy.")
    return cast(Content, content)


@cache
def _tests(kind: type) -> dict[str, Test]:
    """A test for each key of a TypedDict."""
    return {key: _test(hint) for key, hint in get_type_hints(kind).items()}


@cache
def _test(kind: Any) -> Test:
    """Whether a value is of this type, as a function, so that types are examined only once for thousands of files."""
    origin, plain = get_origin(kind), _plain(kind)
    if kind is Any:
        return lambda _: True
    if is_typeddict(kind):
        required = kind.__required_keys__
        return lambda value: (
            value is None or (isinstance(value, dict) and required <= value.keys() and not wrong_keys(value, kind))
        )
    if origin is UnionType:
        tests = [_test(argument) for argument in get_args(kind)]
        return lambda value: type(value) in plain or any(test(value) for test in tests)
    if origin in (dict, list):
        inner, test = _plain(get_args(kind)[-1]), _test(get_args(kind)[-1])

        def are(values: Collection[Any]) -> bool:  # hundreds of packages are compared by their types, not one by one
            return {*map(type, values)} <= inner or all(map(test, values))

        if origin is list:
            return lambda value: value is None or (isinstance(value, list) and are(value))
        return lambda value: value is None or (isinstance(value, dict) and are(value.values()))
    return lambda value: value is None or type(value) in plain


@cache
def _plain(kind: Any) -> frozenset[type]:
    """The Python types of its values in parsed JSON; none for a container."""
    if get_origin(kind) is UnionType:
        return frozenset().union(*map(_plain, get_args(kind)))
    if kind is float:
        return frozenset({float, int, NoneType})
    return frozenset({kind, NoneType}) if kind in (str, int, bool, NoneType) else frozenset()
