"""``python -m runner``: what can be done besides starting runs."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

if __package__ == "runner":  # in a checkout: its code and no other, in every child process too
    names = str(Path(__file__).resolve().parent.parent / ".names")
    sys.path.insert(0, names)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [names, os.environ.get("PYTHONPATH")]))

from manyheads.runner.config.command_line import exit_code
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.run.ledger import Ledger
from manyheads.runner.run.log_file import log_file
from manyheads.runner.run.run_folder import RunFolder

A_RUN = "its folder, such as outputs/2026-01-31/12-00-00"


def main() -> int:
    """Parse the command, do it, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (_add_doctor, _add_resume, _add_report, _add_reproduce, _add_parity, _add_install_horovod):
        add(commands)
    arguments, rest = parser.parse_known_args()
    if rest and (not hasattr(arguments, "overrides") or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # overrides behind an option
        arguments.overrides += rest
    return arguments.do(arguments)


# Each command imports its part when it is called, so that none waits for another's libraries.


def _command(commands: argparse._SubParsersAction, name: str, *, help: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=help, allow_abbrev=False)


def _add_doctor(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        from manyheads.runner.commands.doctor import examine, list_models

        return exit_code(list_models if arguments.models else examine)

    doctor = _command(commands, "doctor", help="what this machine can run; for what it can't: why, and how to get it")
    doctor.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")
    doctor.set_defaults(do=do)


def _add_resume(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        return exit_code(lambda: go_on(arguments.run, only_trust(arguments.trust)))

    resume = _command(commands, "resume", help="go on with a run or a sweep that was interrupted, in its own folder")
    resume.add_argument("run", help=A_RUN)
    resume.add_argument("trust", nargs="*", help="trust=[my_package]: run its code, though others may have named it")
    resume.set_defaults(do=do)


def _add_report(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        from manyheads.runner.report import report

        return exit_code(lambda: report(arguments.folders, baseline=arguments.baseline, to=arguments.to))

    compare = _command(commands, "report", help="compare the jobs of a sweep, or any runs")
    compare.add_argument("folders", nargs="+", metavar="folder", help="a sweep's folder, or runs'")
    compare.add_argument("--baseline", help="a job's number, or values such as parallel=dp,precision=fp32")
    compare.add_argument("--to", help="folder for the files; else the sweep's, or a new one in outputs/comparisons")
    compare.set_defaults(do=do)


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        from manyheads.runner.reproduce import reproduce

        return reproduce(arguments.run, arguments.overrides, steps=arguments.steps, code=arguments.code)

    repeat = _command(commands, "reproduce", help="repeat a finished run, and say whether it is the same")
    repeat.add_argument("run", help=A_RUN)
    repeat.add_argument("overrides", nargs="*", help="changes, such as parallel=ddp launcher.nproc_per_node=3")
    repeat.add_argument("--steps", help="make and compare only so many")
    repeat.add_argument("--code", action="store_true", help="with the recorded commit and changes, not today's code")
    repeat.set_defaults(do=do)


def _add_parity(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        from manyheads.runner.parity.command import parity

        return parity(arguments.overrides, steps=arguments.steps)

    parity = _command(commands, "parity", help="take the same steps on several backends: where they differ, and why")
    parity.add_argument("overrides", nargs="*", help="as for run.py; parallel=single,ddp,... says which, else all")
    parity.add_argument("--steps", default="10", help="how many (10)")
    parity.set_defaults(do=do)


def _add_install_horovod(commands: argparse._SubParsersAction) -> None:
    def do(arguments: argparse.Namespace) -> int:
        from manyheads.runner.parallel.horovod.install import install

        return exit_code(lambda: install(mpi=arguments.mpi, nccl=arguments.nccl, rebuild=arguments.rebuild))

    horovod = _command(commands, "install-horovod", help="build Horovod against the installed torch, and install it")
    mpi = horovod.add_mutually_exclusive_group()
    mpi.add_argument("--mpi", action="store_const", const=True, default=False, help="with MPI besides Gloo")
    mpi.add_argument(
        "--mpi-if-possible", dest="mpi", action="store_const", const=None, help="the same, if MPI can be compiled"
    )
    horovod.add_argument("--nccl", action="store_true", help="with NCCL for GPUs; needs nvcc")
    horovod.add_argument("--rebuild", action="store_true", help="even if an earlier build is kept")
    horovod.set_defaults(do=do)


def only_trust(arguments: list[str]) -> list[str]:
    """The packages that ``trust=...`` names. Raises ConfigurationError for anything else."""
    from manyheads.runner.trust.packages import split_typed

    packages, others = split_typed(arguments)
    if others:
        raise ConfigurationError(f"{others[0]}: a run goes on as it was frozen. Allowed: trust=[my_package].")
    return packages


def go_on(path: str, packages: Sequence[str] = ()) -> None:
    """Continue a run from its last checkpoint, or from the start when it has none; or a sweep. packages: trusted."""
    from manyheads.launchers.launch import launch
    from manyheads.launchers.sweep.resume import resume
    from manyheads.runner.trust.folders import refuse_untrusted_run

    if Ledger(path).exists():
        resume(Path(path), packages)
        return
    folder = RunFolder(path)
    if (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{folder}: a sweep without a ledger, or one that ended while it was planned.")
    result = folder.read_result()
    if result is not None and result["status"] == "completed":
        folder.read_config()
        print(f"{folder} is complete already: {result['steps']} steps. Its results are in {folder.result.name}.")
        return
    refuse_untrusted_run(folder, packages)
    with log_file(folder.log) if folder.path.is_dir() else nullcontext():
        launch(folder)


if __name__ == "__main__":
    sys.exit(main())
