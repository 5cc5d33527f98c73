"""Files in other people's folders are opened through the guard (runner/run/folder.py): found by reading the source.

Asking about a path (``exists``, ``is_file``, ``stat``) opens nothing, so it is only forbidden where trust is decided:
there what is asked about could be another file by the time that it is read.
"""

import ast
from collections import Counter
from itertools import chain

import pytest

from tests.conftest import ROOT

OPENING = {"read_text", "read_bytes", "write_text", "write_bytes", "open"}
LISTING = {"glob", "rglob", "iterdir", "walk"}
CHANGING = {
    "unlink",
    "rmdir",
    "mkdir",
    "rename",
    "touch",
    "chmod",
    "symlink_to",
    "hardlink_to",
    "copy_into",
    "move_into",
}
ASKING = {"exists", "is_file", "is_dir", "is_symlink", "is_fifo", "stat", "lstat", "samefile"}
FUNCTIONS = {
    *("open", "io.open", "gzip.open", "tarfile.open", "zipfile.ZipFile", "Image.open", "sqlite3.connect", "glob.glob"),
    *(f"os.{name}" for name in ("open", "walk", "listdir", "scandir", "remove", "unlink", "rename", "replace", "link")),
    *(f"os.{name}" for name in ("symlink", "mkdir", "makedirs", "rmdir", "removedirs", "truncate", "chmod", "utime")),
    *(f"shutil.{name}" for name in ("rmtree", "copy", "copy2", "copyfile", "copytree", "move", "make_archive")),
    *("OmegaConf.load", "OmegaConf.save", "np.load", "np.loadtxt", "np.save", "np.savez", "np.memmap", "np.fromfile"),
    *("torch.load", "torch.save", "safe_open", "logging.FileHandler"),
}
BY_DESCRIPTOR = {"dir_fd", "src_dir_fd", "at", "opener", "closefd"}
# Why modules may open, list or change something by its path; each with how many calls do.
ALLOWED = {
    "the guard itself, and what it has opened": {
        "runner/run/folder.py": 2,
        "runner/run/files.py": 1,
        "runner/data/links.py": 2,
        "runner/data/imagefolder_listing.py": 1,
        "runner/data/imagefolder.py": 1,
        "runner/data/rank/image_file.py": 1,
        "runner/data/rank/tar.py": 1,
        "runner/data/table/files.py": 1,
        "runner/data/shards/index.py": 1,
        "runner/data/shards/files.py": 1,
        "runner/checkpoint/rank/load.py": 2,
        "runner/checkpoint/rank/bombs.py": 2,
        "runner/checkpoint/rank/checkpoints.py": 2,
        "runner/checkpoint/rank/convert_checkpoint.py": 1,
        "runner/loop/guards/verification.py": 1,
        "runner/run/objects/storage/storage.py: descriptors": 2,
    },
    "names and sizes of data; what is read of it then, is read through links.py": {
        "runner/data/text.py": 2,
        "runner/data/left_out.py": 1,
        "runner/data/tar/index.py: names of shards": 1,
        "runner/data/indexing.py": 1,
        "runner/data/shards/folders.py": 1,
        "runner/provenance/fingerprint.py": 3,
    },
    "another program reads or writes it by itself, after links were refused": {
        "runner/data/hf.py": 2,
        "runner/data/tar/energon.py": 1,
        "runner/data/rank/torchvision.py": 1,
    },
    "names in folders that the user typed; what has them is opened through the guard": {
        "runner/records/find.py": 1,
        "runner/records/run_set.py": 1,
        "runner/run/crowding.py": 1,
        "runner/serve/rank/predict_images.py": 1,
        "runner/config/fresh_folder.py": 3,
    },
    "the user's own code, and files that he typed": {
        "runner/config/code_files.py": 2,
        "runner/provenance/code_state.py": 1,
        "runner/provenance/own_code.py": 5,
        "runner/provenance/kept_files.py": 2,
        "runner/run/hosts.py": 1,
        "runner/config/hydra_version.py": 2,
        "launchers/foreign/command.py": 1,
        "launchers/nodes/node_agent.py": 1,
        "runner/commands/new/__init__.py": 4,
        "runner/commands/init/repository.py": 1,
        "runner/answers/scale/simulator/catalog.py: a network or a device": 1,
    },
    "the user's own settings, key and cache": {
        "runner/trust/trust_store.py": 1,
        "runner/run/seal.py": 4,
        "runner/provenance/copies.py: snapshots": 2,
        "runner/machine/user_folders.py": 3,
        "launchers/environment.py": 1,
        "runner/data/imagefolder_index.py": 2,
        "runner/data/tokenizing.py": 4,
        "runner/run/objects/storage/disk_cache.py": 12,
        "runner/commands/install_horovod/__init__.py": 8,
    },
    "a folder that this process has created for itself, or for the ranks of its own run": {
        "runner/answers/audit/audit_run.py": 1,
        "runner/answers/audit/rank.py": 1,
        "runner/answers/judge/command/arm_runs.py": 4,
        "runner/answers/judge/command/numbers.py: what the user's own command printed": 1,
        "runner/answers/judge/command/supervisor.py": 12,
        "runner/answers/judge/command/trees.py": 5,
        "runner/answers/judge/committed_files.py": 2,
        "runner/data/rank/streams/stream.py: in memory": 2,
        "runner/run/scratch.py": 8,
        "runner/run/child_command.py": 1,
        "runner/respond.py": 1,
        "launchers/agent_program.py": 2,
        "launchers/foreign/stores.py": 1,
        "launchers/warm_settings.py": 4,
        "launchers/nodes/examine_hosts.py": 4,
        "launchers/nodes/wire.py": 2,
        "launchers/torchft/nodes.py": 2,
        "runner/parallel/rank/replicated/healing.py": 6,
        "runner/commands/install_horovod/compile_horovod.py": 3,
        "runner/logger/wandb.py": 5,
        "launchers/companions/publishing/publisher.py": 1,
        "runner/run/private_folder.py: for this user alone": 2,
        "launchers/companions/publishing/empty_folder.py": 1,
        "runner/data/indexing.py: a scratch folder": 1,
        "runner/callbacks/rank/profile.py": 1,
        "runner/serve/rank/export.py": 1,
        "runner/commands/parity.py": 1,
        "runner/commands/pack/destination.py": 4,
        "runner/answers/measure/rank/sides.py": 1,
        "runner/run/files.py: fresh_folder": 1,
        "runner/commands/index.py": 1,
        "runner/checkpoint/fetch.py: names that Manifest has examined": 5,
    },
    "the project's own conf/, templates and pages, and installed packages": {
        "runner/config/lookup.py": 2,
        "runner/config/hydra_errors.py": 1,
        "runner/config/own_folders.py": 3,
        "runner/config/meanings.py": 2,
        "launchers/slurm/batch_script.py": 1,
        "runner/charts/html_page.py": 2,
        "runner/data/diabetes.py": 2,
        "runner/data/digits.py": 2,
        "runner/provenance/provenance.py": 2,
        "runner/parallel/horovod_installation.py": 3,
        "runner/answers/scale/simulator/catalog.py: those that come with it": 1,
    },
    "the machine: /proc, /sys, terminals, the folder that this process stands in": {
        "runner/machine/hardware.py": 5,
        "launchers/companions/neighbours.py": 2,
        "runner/checkpoint/rank/put_off.py": 1,
        "launchers/foreign/meeting.py": 1,
        "launchers/companions/room/claims.py": 1,
        "runner/machine/numa.py": 4,
        "runner/machine/other_gpus.py": 2,
        "runner/machine/control_groups.py": 2,
        "runner/machine/hindrances.py": 8,
        "runner/loop/rank_process.py": 1,
        "runner/loop/preflight.py": 1,
        "runner/machine/import_apart.py": 1,
        "launchers/ray/ray_driver.py": 1,
        "runner/respond.py: nowhere": 1,
        "runner/app.py: nowhere": 1,
        "runner/machine/process.py: nowhere": 1,
    },
}
DECIDING = {"runner/trust", "runner/run/seal.py"}
MAY_ASK = {
    "runner/trust/allowed_keys.py": "which folder on the way to a path exists, so that its owner decides",
    "runner/trust/admit.py": "which message to show; whether jobs hold a run, which is read, and refused, alone",
    "runner/trust/look.py": "whether it is a sweep, whose ledger is then read through the guard",
}


def calls(tree: ast.Module) -> list[ast.Call]:
    """Those that may have to do with a path, but not with a descriptor."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [each for each in found if not BY_DESCRIPTOR & {_of(keyword) for keyword in each.keywords}]


def _of(keyword: ast.keyword) -> str:
    """Its name; of ``**at`` that of the variable, which holds descriptors in the guard."""
    return keyword.arg or ast.unparse(keyword.value)


def opens(tree: ast.Module) -> list[str]:
    """Calls that open, list or change something by its path."""
    found = []
    for call in calls(tree):
        name = ast.unparse(call.func)
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in OPENING | LISTING | CHANGING
        if name in FUNCTIONS or (is_method and not _is_guard(call)):
            found.append(name)
    return found


def _is_guard(call: ast.Call) -> bool:
    """Whether it is a method of ``Folder``, or of a tracker's client, which opens no path."""
    owner = ast.unparse(call.func.value)  # type: ignore[attr-defined]
    return owner in ("folder", "held", "inner", "project", "self", "self.tracker", "ast") and call.func.attr in (
        "open",
        "walk",
    )  # type: ignore


def asks(tree: ast.Module) -> list[str]:
    names = (call.func.attr for call in calls(tree) if isinstance(call.func, ast.Attribute))
    return [name for name in names if name in ASKING]


def sources() -> dict[str, ast.Module]:
    paths = chain((ROOT / "runner").rglob("*.py"), (ROOT / "launchers").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(paths)}


def test_no_path_is_opened_but_by_the_guard_or_for_a_reason():
    found = {name: len(opened) for name, tree in sources().items() if (opened := opens(tree))}
    allowed = Counter[str]()
    for files in ALLOWED.values():
        for name, count in files.items():
            allowed[name.partition(":")[0]] += count
    assert found == dict(allowed)


def test_what_is_trusted_is_read_and_not_asked_about():
    trees = sources().items()
    found = {name for name, tree in trees if asks(tree) and any(name.startswith(each) for each in DECIDING)}
    assert found == MAY_ASK.keys()


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("open(path)", 1),
        ("open(path, opener=no_link)", 0),
        ("(folder / name).read_text()", 1),
        ("path.open()", 1),
        ("folder.open(name)", 0),
        ("shutil.rmtree(path)", 1),
        ("shutil.rmtree(name, dir_fd=handle)", 0),
        ("OmegaConf.save(config, path)", 1),
        ("[*path.glob('*')]", 1),
        ("path.iterdir()", 1),
        ("path.parent.mkdir(exist_ok=True)", 1),
        ("path.unlink(missing_ok=True)", 1),
        ("os.rename(a, b, src_dir_fd=one, dst_dir_fd=two)", 0),
        ("os.replace(a, b)", 1),
        ("torch.load(path)", 1),
    ],
)
def test_what_is_found(source, count):
    assert len(opens(ast.parse(source))) == count


@pytest.mark.parametrize("source", ["path.exists()", "(folder / name).is_file()", "path.stat().st_size"])
def test_asking_is_seen(source):
    assert asks(ast.parse(source))
