"""``python -m runner``: what can be done besides starting runs."""

import argparse
import logging
import sys
from pathlib import Path

from runner.command_line import exit_code
from runner.errors import ConfigurationError
from runner.ledger import Ledger


def main() -> int:
    """Parse the command, do it, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    doctor = commands.add_parser("doctor", help="what this machine can run; for what it can't: why, and how to get it")
    doctor.add_argument("--models", action="store_true", help="list every name that model=torchvision takes")
    resume = commands.add_parser("resume", help="go on with a run or a sweep that was interrupted, in its own folder")
    resume.add_argument("run", help="its folder, such as outputs/2026-01-31/12-00-00")
    compare = commands.add_parser("report", help="compare the jobs of a sweep, or any runs")
    compare.add_argument("folders", nargs="+", metavar="folder", help="a sweep's folder, or runs'")
    compare.add_argument("--baseline", help="a job's number, or values such as parallel=dp,precision=fp32")
    compare.add_argument("--to", help="folder for the files; else the sweep's, or a new one in outputs/comparisons")
    horovod = commands.add_parser("install-horovod", help="build Horovod against the installed torch, and install it")
    horovod.add_argument("--mpi", action="store_true", help="with MPI besides Gloo; needs mpicc")
    horovod.add_argument("--nccl", action="store_true", help="with NCCL for GPUs; needs nvcc")
    horovod.add_argument("--rebuild", action="store_true", help="even if an earlier build is kept")
    arguments = parser.parse_args()
    if arguments.command == "doctor":
        from runner.doctor import examine, list_models

        return exit_code(list_models if arguments.models else examine)
    if arguments.command == "install-horovod":
        from runner.install_horovod import install

        return exit_code(lambda: install(mpi=arguments.mpi, nccl=arguments.nccl, rebuild=arguments.rebuild))
    if arguments.command == "report":
        from runner.report import report

        return exit_code(lambda: report(arguments.folders, baseline=arguments.baseline, to=arguments.to))
    if Ledger(arguments.run).exists():
        from launchers.sweep.resume import resume as go_on_with_sweep

        return exit_code(lambda: go_on_with_sweep(Path(arguments.run)))
    return exit_code(lambda: go_on(arguments.run))


def go_on(path: str) -> None:
    """Continue a run from its last checkpoint, or from the start when it has none."""
    from launchers.base import launch
    from runner.run_folder import RunFolder

    folder = RunFolder(path)
    if (folder.path / "multirun.yaml").exists():
        raise ConfigurationError(f"{folder}: a sweep without a ledger, or one that ended while it was planned.")
    result = folder.read_result()
    if result is not None and result["status"] == "completed":
        folder.read_config()
        print(f"{folder} is complete already: {result['steps']} steps. Its results are in {folder.result.name}.")
        return
    if folder.path.is_dir():
        line = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"  # as Hydra writes it
        logging.basicConfig(level=logging.INFO, format=line, filename=folder.path / "run.log")
    launch(folder)


if __name__ == "__main__":
    sys.exit(main())
