"""Records where a run came from: command, code, versions, devices, host, data. Written before the ranks start."""

import getpass
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from functools import cache
from importlib import metadata

from manyheads.runner.config.lookup import ABOUT, own_sections
from manyheads.runner.machine import invocation
from manyheads.runner.option.declared import ENTRIES, GROUPS, declared, declared_class
from manyheads.runner.option.locate import own_folders
from manyheads.runner.option.run_config import RunConfig
from manyheads.runner.option.tree import OPTION, Section
from manyheads.runner.provenance import predicted
from manyheads.runner.provenance.code_state import code_at_start
from manyheads.runner.provenance.fingerprint import fingerprint, of_weights
from manyheads.runner.provenance.kept_files import keep_files
from manyheads.runner.provenance.node_records import inventory
from manyheads.runner.provenance.own_code import own_code, own_origin
from manyheads.runner.run import seal
from manyheads.runner.run.files import write_whole
from manyheads.runner.run.json_types import ProvenanceJson
from manyheads.runner.run.run_folder import RunFolder

ENVIRONMENT = (
    *("CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "GLOO_", "HOROVOD_", "TORCH_", "PYTORCH_", "SLURM_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_", "PYTHONHASHSEED"),
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|JWT|CREDENTIAL|AUTH|COOKIE|PRIVATE", re.IGNORECASE)
_FIELD = re.compile(r"^(Name|Version): *(.+?) *$", re.MULTILINE)
_IN_URL = re.compile(r"(\w+://)[^/@\s]+@")  # user and password
# Of every run, the keys and sections that cannot change its results; options declare theirs.
WITHOUT_EFFECT = frozenset(
    {
        *(*ABOUT, *ENTRIES, "trainer.log_every"),
        *(f"checkpoint.{key}" for key in ("every", "format", "asynchronous", "keep", "keep_every", "keep_hours")),
        *("checkpoint.mirror", "checkpoint.mirror_wait"),
    }
)


@cache
def without_effect() -> frozenset[str]:
    """All keys that cannot change a run's results, with those that any of this project's options declares."""
    options = ((group, declared_class(group, section)) for group in GROUPS for section in own_sections(group))
    keys = (f"{group}.{key}" for group, option in options for key in option.every("without_effect"))
    return WITHOUT_EFFECT.union(keys)


def record(folder: RunFolder, run: RunConfig, *, composed_from: str | None = None) -> None:
    """Write provenance.json, code.diff if the code differs from its commit, and copies of the user's own files.

    composed_from: the saved config that the run's config was composed from.
    """
    diff = code_at_start()[1]
    if diff:
        write_whole(folder.code_diff, diff)
    copies = keep_files(folder, run.written)
    described: ProvenanceJson = {"id": secrets.token_hex(8), **describe(run, composed_from=composed_from)}
    recorded = {name: str(described.get(name)) for name in ("id", "commit", "directory")}
    seal.record(folder.path, {**recorded, folder.code_diff.name: diff, **copies})
    if (prediction := predicted.of_run(run)) is not None:
        described["predicted"] = prediction
    folder.write_json(folder.provenance, described)


def describe(run: RunConfig, *, composed_from: str | None = None) -> ProvenanceJson:
    """The content of provenance.json for a run of this config started here and now."""
    commit, diff = code_at_start()
    packages, here = installed_packages(), inventory()
    return {
        "command": shlex.join(map(without_secrets, invocation.as_typed())),
        "directory": next(iter(own_folders()), os.getcwd()),
        "composed_from": composed_from,
        "continued_from": continued_from(run.checkpoint.resume),
        "signature": signature(run.written),
        "commit": commit,
        "clean": commit is not None and not diff,
        "own": own_origin(run.written),
        "own_code": own_code(run.written),
        "versions": {
            "python": here["versions"]["python"],
            "torch": packages.get("torch"),
            "torchvision": packages.get("torchvision"),
            **_libraries(),
            "cuda": here["versions"]["cuda"],
            "cudnn": _of_nvidia(packages, "cudnn"),
            "nccl": _of_nvidia(packages, "nccl"),
            "driver": here["versions"]["driver"],
        },
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
        "devices": here["devices"],
        "cpu": {**here["cpu"], "threads_per_rank": run.launcher.threads_per_rank},
        "host": here["host"],
        "user": user(),
        "system": here["system"],
        "environment": recorded_environment(os.environ),
        "ranks": run.launcher.ranks,
        "launcher": run.launcher.name,
        "data": fingerprint(run.data),
        "weights": of_weights(run.checkpoint.load or run.checkpoint.resume),
    }


def _libraries() -> dict[str, str | None]:
    """The versions of the libraries that this project's strategies are built on, by name."""
    versions = (declared("parallel", section).versions() for section in own_sections("parallel"))
    return {name: version for libraries in versions for name, version in libraries.items()}


def continued_from(checkpoint: str | None) -> str | None:
    """The run, or else the checkpoint, that a run continues from; None if it starts from scratch."""
    if checkpoint is None:
        return None
    folder = RunFolder.of_checkpoint(checkpoint)
    return str(folder.path) if folder.config.exists() else str(checkpoint)


@cache
def installed_packages() -> dict[str, str]:
    """Versions of the installed packages, by name; cached for all runs that this process starts.

    Of each package's metadata only the fields are read: parsing it, with the description, takes ten times as long.
    """
    versions: dict[str, str] = {}
    for package in metadata.distributions():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        fields = dict(_FIELD.findall(text.partition("\n\n")[0]))
        if {"Name", "Version"} <= fields.keys():
            versions.setdefault(fields["Name"], fields["Version"])  # the first on the path is the one that is imported
    return versions


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that can affect a run, without those that may contain a secret."""
    chosen = {name: value for name, value in sorted(environment.items()) if name.startswith(ENVIRONMENT)}
    return {name: without_secrets(value) for name, value in chosen.items() if not SECRET.search(name)}


def without_secrets(text: str) -> str:
    """An argument or a value, with anything that looks like a password or a key masked."""
    key, equals, value = text.partition("=")
    if equals and value and SECRET.search(key):
        return f"{key}=***"
    return _IN_URL.sub(r"\1***@", text)


def signature(config: Section) -> str:
    """A digest of everything in a written config that can change a run's results.

    Equal signatures promise equal results. Imports the declarations that the options name.
    """
    declared = {group: declared_class(group, config[group]).every("without_effect") for group in GROUPS}
    ignored = WITHOUT_EFFECT.union(f"{group}.{key}" for group, keys in declared.items() for key in keys)
    kept = {
        group: {k: v for k, v in section.items() if k != OPTION and f"{group}.{k}" not in ignored}
        if isinstance(section, dict)
        else section
        for group, section in config.items()
        if group not in ignored
    }
    return seal.digest_of(kept)


def user() -> str:
    """The name of the user who runs this process, or the id of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _of_nvidia(packages: dict[str, str], library: str) -> str | None:
    """The version of a library that torch installed as a separate package."""
    return next((version for name, version in packages.items() if name.startswith(f"nvidia-{library}-cu")), None)
