"""The reference of all config keys, read from conf/: the only place that has their defaults and meanings."""

import re
from collections.abc import Iterator
from pathlib import Path

from manyheads.runner.config.lookup import CONF

LINE = re.compile(r"(?P<indent> *)(?P<key>[\w-]+):(?: +(?P<value>[^#]*?))?(?: *# (?P<meaning>.*))?$")
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
            parts += [f"\n### {group}={path.stem}\n", _description(path) + "\n", *_table(path, group)]
    return "\n".join(parts) + "\n"


def _description(path: Path) -> str:
    """The comment at the head of an option's file."""
    head = [line for line in path.read_text().splitlines() if line.startswith("# ") and "@package" not in line]
    return " ".join(line[2:] for line in head)


def _table(path: Path, group: str) -> list[str]:
    rows = list(_rows(path, group))
    if not rows:
        return []
    cells = (f"| `{key}` | {f'`{value}`' if value else ''} | {meaning} |" for key, value, meaning in rows)
    return ["| key | default | |", "|---|---|---|", *cells, ""]


def _rows(path: Path, group: str) -> Iterator[tuple[str, str, str]]:
    """Dotted keys, defaults and meanings of a file, in its order."""
    text = path.read_text()
    package = re.search(r"@package (\S+)", text)
    prefix = {"_global_": []}.get(package[1], package[1].split(".")) if package else [group] if group else []
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if not match:
            continue
        indent = len(match["indent"])
        above = [(depth, key) for depth, key in above if depth < indent] + [(indent, match["key"])]
        keys = [*prefix, *(key for _, key in above)]
        value, meaning = (match["value"] or "").strip(), match["meaning"] or ""
        if keys[0] in ("defaults", "hydra") or (group and keys[-1] in CODE) or not (value or meaning):
            continue
        yield ".".join(keys), value.replace("|", "\\|"), re.sub(r"([_*|<])", r"\\\1", meaning)
