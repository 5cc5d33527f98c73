"""Where a run came from: command, code, versions, devices, host. Written before the ranks start."""

import getpass
import hashlib
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from runner import apex_installation, hardware, horovod_installation
from runner.command_line import FRESH_FOLDER
from runner.hosts import ranks
from runner.run_folder import RunFolder, write_whole

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ("CUDA_", "NCCL_", "GLOO_", "OMP_", "MKL_", "KMP_", "HOROVOD_", "TORCH_", "PYTORCH_", "CUBLAS_", "SLURM_")
CODE = ("*.py", "*.yaml", "*.yml", "*.toml", "*.cfg", "*.sh", "*.c", "*.cc", "*.cpp", "*.cu", "*.h")
# Keys that cannot change a run's results.
WITHOUT_EFFECT = (
    ("data", "root"),
    ("data", "num_workers"),
    ("trainer", "log_every"),
    ("checkpoint", "every"),
    ("checkpoint", "keep"),
    ("launcher", "stall_timeout"),
    ("launcher", "timeout"),
    ("launcher", "warm"),
    ("parallel", "timeout"),
)


def record(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write provenance.json, and code.diff where the code differs from its commit."""
    commit, diff = code_at_start()
    if diff:
        write_whole(folder.code_diff, diff)
    packages = installed_packages()
    content = {
        "command": shlex.join(["python", *(a for a in sys.argv if a != FRESH_FOLDER)]),
        "directory": os.getcwd(),
        "signature": signature(config),
        "commit": commit,
        "clean": commit is not None and not diff,
        "versions": {
            "python": platform.python_version(),
            "torch": packages.get("torch"),
            "torchvision": packages.get("torchvision"),
            "horovod": horovod_installation.version(),
            "apex": apex_installation.description(),
            "cuda": hardware.torch_cuda_version(),
            "driver": hardware.driver_version() or None,
        },
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        "devices": hardware.gpu_names(),
        "cpu": {"model": hardware.cpu_model(), "cores": hardware.cpu_cores()},
        "host": socket.gethostname(),
        "user": _user(),
        "system": platform.platform(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(ENVIRONMENT)},
        "ranks": ranks(config),
        "launcher": config["launcher"]["name"],
    }
    folder.write_json(folder.provenance, content)


@cache
def installed_packages() -> dict[str, str]:
    """Versions by name; those of this process, for all the runs that it starts."""
    return {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"]}


@cache
def code_at_start() -> tuple[str | None, bytes]:
    """``code_state`` as it was for the first run that this process starts; warm ranks of later ones run that too."""
    return code_state()


def signature(config: dict[str, Any]) -> str:
    """Digest of all that can change a run's results: equal signatures ask for equal results."""
    kept = {
        group: {k: v for k, v in section.items() if (group, k) not in WITHOUT_EFFECT}
        if isinstance(section, dict)
        else section
        for group, section in config.items()
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def code_state() -> tuple[str | None, bytes]:
    """The project's commit and what differs from it, untracked code files included; without git (None, b"")."""
    commit = _git("rev-parse", "HEAD").decode().strip() or None
    index = _git("rev-parse", "--git-path", "index").decode().strip()
    if commit is None or not (ROOT / index).exists():
        return commit, b""
    with tempfile.TemporaryDirectory() as scratch:  # a scratch index, so that the user's own is not touched
        env = {"GIT_INDEX_FILE": shutil.copy(ROOT / index, scratch)}
        untracked = _git("ls-files", "--others", "--exclude-standard", "-z", "--", *CODE)
        if new := [os.fsdecode(path) for path in untracked.split(b"\0") if path]:
            _git("--literal-pathspecs", "add", "--intent-to-add", "--", *new, env=env)
        return commit, _git("diff", "HEAD", env=env)


def _git(*arguments: str, env: dict[str, str] | None = None) -> bytes:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, check=False
        )
    except FileNotFoundError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
