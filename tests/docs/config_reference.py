"""The reference of all config keys, read from conf/: the only place that has their defaults and meanings."""

import re
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.meanings import described, description
from manyheads.runner.parallel.mesh_refusals import REFUSALS

CODE = ("_target_", "_option_", "name")  # which class an option is, and its own name
GROUPS = (
    *("model", "data", "task", "loss", "optimizer", "scheduler", "parallel", "precision", "launcher", "metrics"),
    *("callbacks", "logger", "experiment", "tuned"),
)


def reference() -> str:
    """The page, in Markdown."""
    parts = ["# Config reference\n\nGenerated from `conf/`. `???` has to be set, `null` means none.\n"]
    parts += ["## Keys of every run\n", *_table(CONF / "config.yaml", "")]
    folders = {folder.name for folder in CONF.iterdir() if folder.is_dir() and any(folder.glob("*.yaml"))}
    for group in sorted(folders, key=lambda name: (GROUPS.index(name) if name in GROUPS else len(GROUPS), name)):
        parts.append(f"\n## {group}\n")
        for path in sorted((CONF / group).glob("*.yaml")):
            parts += [f"\n### {group}={path.stem}\n", description(path) + "\n", *_table(path, group)]
            parts += _refusals() if path.stem == "mesh" else []
    return "\n".join(parts) + "\n"


def _refusals() -> Iterator[str]:
    """What cannot be combined with sharded, split or staged ranks, as a table."""
    yield "| in a mesh, `fsdp`, `tensor` or `pipeline` with | is refused | because | instead |\n|---|---|---|---|"
    for refusal in REFUSALS:
        way = "any of them" if refusal.way == "any" else f"`{refusal.way}`"
        yield f"| {way} | {refusal.key} | {refusal.reason} | {refusal.remedy} |"
    yield ""


def _table(path: Path, group: str) -> list[str]:
    rows = list(_rows(path, group))
    if not rows:
        return []
    cells = (f"| `{key}` | {f'`{value}`' if value else ''} | {meaning} |" for key, value, meaning in rows)
    return ["| key | default | |", "|---|---|---|", *cells, ""]


def _rows(path: Path, group: str) -> Iterator[tuple[str, str, str]]:
    """Dotted keys, defaults and meanings of a file, in its order."""
    for key, value, meaning in described(path, group):
        if (group and key.rpartition(".")[2] in CODE) or not (value or meaning):
            continue
        yield key, value.replace("|", "\\|"), re.sub(r"([_*|<])", r"\\\1", meaning)
