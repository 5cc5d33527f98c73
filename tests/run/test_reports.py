"""How ranks failed, in files that anybody may have spoilt."""

import json

from manyheads.runner.run.failure import Failure
from manyheads.runner.run.reports import failures_of, read_reports, report_file, write_report

FULL = Failure(rank=1, exit_code=1, type="OSError", message="disk full", traceback="Traceback 1")


def test_what_was_written_is_read(tmp_path):
    write_report(tmp_path, 1, FULL)
    write_report(tmp_path, 0, Failure(rank=0, type="ConnectionError", message="peer closed"))
    assert [failure.rank for failure in failures_of(read_reports(tmp_path))] == [1, 0]
    assert failures_of(read_reports(tmp_path))[0] == FULL


def test_the_earliest_comes_first_and_one_without_a_time_last():
    reports = [{**FULL.to_json(), "rank": rank, "time": time} for rank, time in enumerate((None, 2.0, 1.0, "noon"))]
    assert [failure.rank for failure in failures_of(reports)] == [2, 1, 0, 3]
    assert failures_of([{"rank": 1, "time": 10.0}]) == []


def test_what_cannot_be_read_is_skipped(tmp_path):
    assert read_reports(tmp_path / "gone") == []
    write_report(tmp_path, 1, FULL)
    report_file(tmp_path, 0).write_text("torn {")
    report_file(tmp_path, 2).write_text(json.dumps([]))
    report_file(tmp_path, 3).symlink_to(report_file(tmp_path, 1))
    assert failures_of(read_reports(tmp_path)) == [FULL]
