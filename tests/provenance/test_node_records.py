"""provenance.json of a run whose ranks are on other machines than the one on which the command was typed."""

import json

import pytest

from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.provenance.node_records import note_nodes, unless_submitted
from manyheads.runner.provenance.provenance import describe, record
from manyheads.runner.records.surroundings import differences
from manyheads.runner.run.run_folder import RunFolder
from tests.in_process import config, typed


def machine(host: str, gpus: int = 2) -> dict:
    return {
        "node": host[:2],
        "host": host,
        "system": "Linux there",
        "cpu": {"model": "of the node", "cores": 64},
        "devices": ["NVIDIA H200"] * gpus,
        "versions": {"python": "3.99", "torch": "9.9", "cuda": "13.0", "driver": "999"},
    }


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config(config())
    record(folder, RunConfig.read(folder))
    return folder


def read(folder):
    return json.loads(folder.provenance.read_text())


def test_it_describes_the_machine_of_rank_0_and_lists_all(folder):
    before, written = read(folder), folder.provenance.stat().st_mtime_ns
    nodes = [machine("n1.site"), machine("n2.site")]
    note_nodes(folder, nodes)
    now = read(folder)
    assert (now["host"], now["devices"], now["nodes"]) == ("n1.site", ["NVIDIA H200"] * 2, nodes)
    assert now["cpu"] == {"model": "of the node", "cores": 64, "threads_per_rank": before["cpu"]["threads_per_rank"]}
    assert now["versions"] == {**before["versions"], **nodes[0]["versions"]}
    assert now["submitted_from"] == before["host"]
    kept = [key for key in before if key not in ("host", "system", "cpu", "devices", "versions")]
    assert {key: now[key] for key in kept} == {key: before[key] for key in kept}
    assert folder.provenance.stat().st_mtime_ns == written  # by which trackers date the start


def test_after_a_restart_elsewhere_the_machine_of_the_command_is_still_known(folder):
    host = read(folder)["host"]
    note_nodes(folder, [machine("n1.site")])
    note_nodes(folder, [machine("n2.site")])
    now = read(folder)
    assert (now["host"], now["submitted_from"]) == ("n2.site", host)


def test_typed_on_the_machine_of_rank_0_it_was_not_submitted(folder):
    note_nodes(folder, [machine(read(folder)["host"]), machine("n2")])
    assert "submitted_from" not in read(folder)


def test_a_run_that_nobody_recorded_is_left_so(tmp_path):
    note_nodes(RunFolder(tmp_path), [machine("n1")])
    assert not list(tmp_path.iterdir())


def test_reproduced_from_where_it_was_submitted_no_machine_differs(folder):
    note_nodes(folder, [{**machine("n1.site"), "versions": describe(typed())["versions"] | {"driver": "999"}}])
    recorded = read(folder)
    assert differences(recorded, unless_submitted(describe(typed()), recorded), chosen=[], diffs=None) == []
    elsewhere = unless_submitted({**describe(typed()), "host": "third"}, recorded)
    assert "CPU" in [row.what for row in differences(recorded, elsewhere, chosen=[], diffs=None)]
