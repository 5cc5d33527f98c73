"""The parent starts without torch: the difference between a third of a second and several."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from manyheads.runner.config.lookup import options, read_option
from tests.conftest import ROOT, RUN
from tests.data.conftest import save_photos
from tests.data.tar.conftest import samples, write_tar
from tests.tail import tail

RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
BANNED = RUFF["flake8-tidy-imports"]["banned-module-level-imports"]
IN_RANKS = ("loop", "rank", "rank.py")
NAMED = {**os.environ, "PYTHONPATH": str(ROOT / ".names")}
WARM = "launchers/warm_preload.py"  # what is imported before ranks are forked from it
TORCH_FREE = [
    ".".join(("manyheads", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for room in ("runner", "launchers")
    for path in sorted((ROOT / room).rglob("*.py"))
    if not {*IN_RANKS} & {*path.relative_to(ROOT).parts} and "hydra_plugins" not in path.parts
    if str(path.relative_to(ROOT)) != WARM
]


def imported(*command: str, cwd: Path) -> tuple[int, set[str]]:
    """Exit code of a Python command, and the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=NAMED,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.returncode, {line.rpartition("|")[2].strip() for line in lines}


def test_importing_a_torch_free_module_imports_no_torch():
    code = (
        "import importlib, sys\n"
        f"for name in {TORCH_FREE!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not {{*{BANNED!r}}} & set(sys.modules), name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_all_options_declare_is_known_without_the_libraries_of_some():
    """A report asks all of them, also where an extra is not installed; Hugging Face's library takes a second."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('datasets', 'huggingface_hub', 'pandas', 'sklearn', 'timm')))\n"
        "from manyheads.runner.provenance.provenance import without_effect\n"
        "assert 'data.num_workers' in without_effect()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=NAMED, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("pyarrow")
def test_a_data_option_says_which_samples_without_torch(tmp_path):
    import pyarrow.parquet

    photos = str(save_photos(tmp_path))
    (tmp_path / "text.txt").write_text("some words " * 2000)
    (tmp_path / "houses.csv").write_text("area,price\n" + "".join(f"{area},{3 * area}\n" for area in range(99)))
    for split in ("train", "val"):
        write_tar(tmp_path / "shards" / f"{split}.tar", samples(0, 99))
        (tmp_path / "shards" / f"{split}.bin").write_bytes(b"\1\0" * 1000)
        table = pyarrow.table({"text": ["some words"] * 99})
        pyarrow.parquet.write_table(table, tmp_path / "shards" / f"{split}.parquet")
    roots = {
        "text": str(tmp_path / "text.txt"),
        **dict.fromkeys(("tar", "tokens", "parquet"), str(tmp_path / "shards")),
        "table": str(tmp_path / "houses.csv"),
    }
    given = {"table": {"target": "price", "encoding": None}}
    sections = [
        {**read_option("data", name), "root": roots.get(name, photos), **given.get(name, {})}
        for name in options("data")
        if name != "custom"
    ]
    code = (
        "import inspect, sys\n"
        "from manyheads.runner.option.locate import locate\n"
        f"for section in {sections!r}:\n"
        "    kind = locate('data', section['_target_'])\n"
        "    data = kind(**{key: section[key] for key in inspect.signature(kind).parameters})\n"
        "    assert data.split(train=True) and data.split(train=False)\n"
        f"    assert not {{*{BANNED!r}}} & set(sys.modules), section['name']\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([str(RUN), "--cfg", "job"], 0),
        tail([str(RUN), "--help"], 0),
        ([str(RUN), "parallel=ddp", "data.batch_size=3"], 2),
        tail([str(RUN), "parallel=dpp"], 2),
        tail([str(RUN), "data=mnist", "data.download=false", "data.root=/nowhere"], 2),
        (["-m", "manyheads.runner", "doctor"], 0),
        (["-m", "manyheads.runner", "resume", "/nowhere"], 2),
    ],
    ids=lambda value: " ".join(map(os.path.basename, value)) if isinstance(value, list) else str(value),
)
def test_what_starts_no_rank_imports_no_torch(tmp_path, command, code):
    returned, modules = imported(*command, cwd=tmp_path)
    assert returned == code
    assert "manyheads.runner.config.lookup" in modules
    assert modules & set(BANNED) == set()


def test_a_runs_first_line_needs_no_torch(tmp_path):
    """Which is not there, so that the run fails after it."""
    code = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(RUN)!r}, run_name='__main__')"
    command = [sys.executable, "-c", code, "hydra.run.dir=first"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=NAMED)
    assert (done.returncode, done.stdout) == (1, "run        first\n"), done.stderr
