"""``python -m runner install-horovod``: build Horovod against the installed torch, and install it."""

import argparse

from manyheads.runner.parallel.horovod.install import install

HELP = "build Horovod against the installed torch, and install it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may follow the command's name."""
    parser.add_argument("--mpi", action="store_true", help="with MPI besides Gloo; needs mpicc")
    parser.add_argument("--nccl", action="store_true", help="with NCCL for GPUs; needs nvcc")
    parser.add_argument("--rebuild", action="store_true", help="even if an earlier build is kept")


def run(arguments: argparse.Namespace) -> None:
    """Install the wheel that fits, building it first where there is none."""
    install(mpi=arguments.mpi, nccl=arguments.nccl, rebuild=arguments.rebuild)
