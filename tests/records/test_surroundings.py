import copy

import pytest

from manyheads.runner.provenance.provenance import describe
from manyheads.runner.records.surroundings import differences, overridden, show
from tests.in_process import config, typed


@pytest.fixture(scope="module")
def recorded():
    return describe(typed())


def changed(content, *keys, to):
    other = copy.deepcopy(content)
    section = other
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = to
    return other


def found(recorded, now, **options):
    return differences(recorded, now, **{"chosen": [], "diffs": None, **options})


def test_nothing_differs_from_itself(recorded, capsys):
    assert found(recorded, recorded, diffs=(b"x", b"x")) == []
    show([])
    assert "nothing differs" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["own_code", "environment", "packages", "versions", "cpu", "data", "commit"])
def test_null_in_a_recording_counts_as_not_recorded(recorded, key):
    now = {**recorded, "environment": {}}
    assert found({**now, key: None}, now, diffs=(b"", b"")) == []
    assert found(now, {**now, key: None}, diffs=(b"", b"")) == []


def test_what_torchrun_sets_is_no_difference(recorded):
    variables = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert found({**recorded, "environment": variables}, {**recorded, "environment": {}}) == []


@pytest.mark.parametrize(
    ("keys", "to", "what", "matters"),
    [
        (("versions", "torch"), "9.9", "torch", True),
        (("versions", "cudnn"), "9.9", "cudnn", True),
        (("devices",), ["NVIDIA H200"], "GPUs", True),
        (("ranks",), 7, "ranks", True),
        (("cpu", "threads_per_rank"), 7, "CPU threads per rank", True),
        (("cpu", "model"), "other", "CPU", True),
        (("environment",), {"NVIDIA_TF32_OVERRIDE": "1"}, "NVIDIA_TF32_OVERRIDE", True),
        (("own_code",), {"my": "b"}, "code of my", True),
        (("data", "sizes"), "b" * 64, "data", True),
        (("versions", "python"), "3.99", "python", False),
        (("host",), "elsewhere", "host", False),
        (("launcher",), "torchrun", "launcher", False),
        (("packages", "rich"), "99", "rich", False),
        (("packages", "numpy"), "99", "numpy", True),
    ],
)
def test_each_is_named_with_its_weight(recorded, keys, to, what, matters):
    recorded = {**recorded, "own_code": {"my": "a"}, "environment": {}}
    recorded = changed(recorded, "versions", "cudnn", to="9.1")
    (row,) = [row for row in found(recorded, changed(recorded, *keys, to=to)) if row.what == what]
    assert row.matters == matters
    assert row.recorded != row.now


def test_what_can_change_numbers_comes_first(recorded):
    now = changed(changed(recorded, "host", to="elsewhere"), "versions", "torch", to="9.9")
    assert [row.what for row in found(recorded, now)] == ["torch", "host"]


def test_code_is_the_commit_and_the_changes(recorded):
    (row,) = found({**recorded, "commit": "a" * 40}, {**recorded, "commit": "b" * 40}, diffs=(b"", b"1\n2\n"))
    assert (row.recorded, row.now) == ("a" * 10 + ", clean", "b" * 10 + " with changes a6e2b7")
    assert found({**recorded, "commit": "a"}, {**recorded, "commit": "b"}) == []  # the recorded code will run


def test_what_was_not_recorded_is_no_difference(recorded):
    assert found({"environment": recorded["environment"]}, recorded) == []


def test_contents_decide_where_both_have_them(recorded):
    first = changed(recorded, "data", "contents", to="a" * 64)
    assert [row.what for row in found(first, changed(recorded, "data", "contents", to="b" * 64))] == ["data"]
    assert found(first, recorded) == []


def test_many_packages_are_summed_up(recorded):
    now = {**recorded, "packages": {**recorded["packages"], **{f"p{n}": "1" for n in range(10)}}}
    assert [row.what for row in found(recorded, now)] == ["p0", "p1", "p2", "p3", "p4", "p5", "other packages"]
    assert found(recorded, now)[-1].now == "4 more"


def test_overrides_say_what_they_change():
    rows = overridden(config(), ["parallel=ddp", "optimizer.lr=0.5", "data.num_workers=3", "+model.depth=2", "trust=a"])
    assert [tuple(row) for row in rows] == [
        ("parallel", "single", "ddp", True),
        ("optimizer.lr", "0.02", "0.5", True),
        ("data.num_workers", "0", "3", False),
        ("+model.depth", "", "2", True),
    ]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_fits_the_terminal(recorded, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    show(found(recorded, changed(recorded, "cpu", "model", to="a processor with a long name " * 4)))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert "changes" in out
