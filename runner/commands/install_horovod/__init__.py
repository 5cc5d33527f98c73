"""``python -m runner install-horovod``: build Horovod against the installed torch, and install it."""

import argparse

from manyheads.runner.commands.install_horovod.horovod_wheel import HorovodInstalled, install

HELP = "build Horovod against the installed torch, and install it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    mpi = parser.add_mutually_exclusive_group()
    mpi.add_argument("--mpi", action="store_const", const=True, default=False, help="with MPI besides Gloo")
    mpi.add_argument("--mpi-if-possible", dest="mpi", action="store_const", const=None, help="if it can be compiled")
    parser.add_argument("--nccl", action="store_true", help="with NCCL for GPUs; needs nvcc")
    parser.add_argument("--rebuild", action="store_true", help="even if an earlier build is cached")


def run(arguments: argparse.Namespace) -> HorovodInstalled:
    """Install the matching wheel, building it first if there is none."""
    return install(mpi=arguments.mpi, nccl=arguments.nccl, rebuild=arguments.rebuild)
