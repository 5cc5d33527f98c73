"""The heading of a comparison: its runs' name, and when, where and from which code they ran."""

from datetime import datetime

from manyheads.runner.provenance.own_code import in_words
from manyheads.runner.records.load_run import Run
from manyheads.runner.report.comparison import Comparison


def heading(comparison: Comparison) -> str:
    """The common name of all runs, or else the folder."""
    names = {str(row.first.run.config.get("name") or "") for row in comparison.rows}
    return names.pop() if len(names) == 1 and names != {""} else comparison.title


def facts(comparison: Comparison) -> dict[str, str]:
    """Date, command, machine, software and commit of the first run that has them; notes report differences."""
    runs = [job.run for row in comparison.rows for job in row.jobs]
    if (documented := next((run for run in runs if run.provenance), None)) is None:
        return {}
    about = documented.provenance
    commands = {str(run.provenance["command"]) for run in runs if run.provenance.get("command")}
    lines = {
        "folder": comparison.title if heading(comparison) != comparison.title else "",
        "date": _date(runs),
        "command": commands.pop() if len(commands) == 1 else "",
        "machine": _machine(documented),
        "software": ", ".join(
            f"{name} {version}"
            for name, key in (("Python", "python"), ("torch", "torch"), ("CUDA", "cuda"))
            if (version := (about.get("versions") or {}).get(key)) and (key != "cuda" or about.get("devices"))
        ),
        "manyheads": _commit(documented),
        "own code": in_words(about),
    }
    return {name: text for name, text in lines.items() if text}


def _date(runs: list[Run]) -> str:
    """From the first epoch's start to the last one's, on this machine's clock."""
    if not (starts := [start for run in runs for start in run.epochs.get("started", []) if start > 0]):
        return ""
    try:
        first, last = (datetime.fromtimestamp(end).isoformat(" ", "minutes") for end in (min(starts), max(starts)))
    except (OverflowError, ValueError, OSError):  # times of a damaged table
        return ""
    return first if first == last else f"{first} to {last.removeprefix(first[:11])}"


def _machine(run: Run) -> str:
    """``node1: 8 x NVIDIA H200``, or the processor if there is no GPU."""
    about = run.provenance
    devices, cpu = about.get("devices") or [], about.get("cpu") or {}
    kinds = [f"{devices.count(name)} x {name}" for name in dict.fromkeys(devices)]
    cores = f"{cpu.get('cores')} cores" if cpu.get("cores") else ""
    what = ", ".join(kinds) or ", ".join(str(part) for part in (cpu.get("model"), cores) if part)
    return ": ".join(str(part) for part in (about.get("host"), what) if part)


def _commit(run: Run) -> str:
    commit = str(run.provenance.get("commit") or "")[:10]
    return commit and f"commit {commit}" + ("" if run.provenance.get("clean") else " with uncommitted changes")
