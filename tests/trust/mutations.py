"""Ways to change a folder that somebody sends, each chosen by a seeded generator."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

WORDS = (
    *("os.system", "canary.Net", "torch.hub.load", "torch.nn.MSELoss", "builtins.exec", "canary.py:Net"),
    *("${oc.env:HOME}", "${seed}", "$(touch mark)", "; touch mark", "`touch mark`", "=cmd|' /C calc'!A0"),
    *("-o", "--yes", "../../mark", "../victim", "/etc/passwd", "~/.bashrc", "file:///tmp/mark", "http://127.0.0.1:9/x"),
    *("\x1b[2J", "\0", "a\nb", "\ud800", "", "_target_", "hydra", "???", "x" * 5000, "١٢", "<script>alert(1)</script>"),
    *("NaN", "1e999", "-1", "9" * 400, "[", "{", "*a", "!!python/object/apply:os.system [touch mark]"),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *WORDS,
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    float("nan"),
    [],
    {},
    [[[]]],
    {"_target_": "canary.Net"},
)
Mutation = Callable[[Path, Path, random.Random], str]


def flip(path: Path, victim: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes() or b"\0")
    for _ in range(chance.choice((1, 1, 4, 32))):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)
    return "flipped bytes"


def cut(path: Path, victim: Path, chance: random.Random) -> str:
    size = chance.randrange(path.stat().st_size + 1)
    os.truncate(path, size)
    return f"cut to {size} bytes"


def grow(path: Path, victim: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content) + 1)
    what = chance.choice((b"\0" * 10_000, b"\xff\xfe", b"[" * 20_000, b'{"a":' * 20_000, b"\n" * 1000, content[:2000]))
    path.write_bytes(content[:at] + what + content[at:])
    return f"{what[:8]!r} added at {at}"


def word(path: Path, victim: Path, chance: random.Random) -> str:
    """In the place of a word of a text."""
    words = path.read_text(errors="replace").split(" ")
    at, new = chance.randrange(len(words)), chance.choice(WORDS)
    words[at] = new
    path.write_bytes(" ".join(words).encode(errors="replace"))
    return f"word {at} is {new[:30]!r}"


def cell(path: Path, victim: Path, chance: random.Random) -> str:
    """In the place of a cell of a table."""
    lines = path.read_text(errors="replace").splitlines() or [""]
    line = chance.randrange(len(lines))
    cells = lines[line].split(",")
    at, new = chance.randrange(len(cells)), str(chance.choice(VALUES))
    cells[at] = new
    lines[line] = ",".join(cells)
    path.write_bytes("\n".join(lines).encode(errors="replace"))
    return f"cell {line}, {at} is {new[:30]!r}"


def value(path: Path, victim: Path, chance: random.Random) -> str:
    """In the place of a value in JSON or YAML."""
    text = path.read_text(errors="replace")
    is_json = path.suffix == ".json"
    content = json.loads(text) if is_json else yaml.load(text, yaml.CSafeLoader)
    places = [*_places(content)]
    holder, key = chance.choice(places)
    new = chance.choice(VALUES)
    kind = chance.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[chance.choice(WORDS)] = new
    else:
        holder[key] = new
    path.write_bytes((json.dumps(content) if is_json else yaml.safe_dump(content, allow_unicode=False)).encode())
    return f"{key} {('is gone', 'has a neighbour', 'is')[min(kind, 2)]} {str(new)[:30]!r}"


def link(path: Path, victim: Path, chance: random.Random) -> str:
    target = chance.choice((victim / "secret", victim, Path("/dev/zero"), victim / "new", Path("/")))
    _remove(path)
    path.symlink_to(target)
    return f"a link to {target}"


def parent_link(path: Path, victim: Path, chance: random.Random) -> str:
    """The folder that it lies in leads outside."""
    shutil.copytree(path.parent, victim / path.parent.name, dirs_exist_ok=True, symlinks=True)
    shutil.rmtree(path.parent)
    path.parent.symlink_to(victim / path.parent.name)
    return f"{path.parent.name} is a link"


def pipe(path: Path, victim: Path, chance: random.Random) -> str:
    _remove(path)
    os.mkfifo(path)
    return "a pipe"


def folder(path: Path, victim: Path, chance: random.Random) -> str:
    _remove(path)
    path.mkdir()
    return "a folder"


def gone(path: Path, victim: Path, chance: random.Random) -> str:
    _remove(path)
    return "gone"


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, cut, grow, word, word, cell, cell, value, value, value, value),
    *(link, parent_link, pipe, folder, gone),
)


def mutate(root: Path, victim: Path, chance: random.Random) -> str:
    """Change one file below ``root``, chosen evenly among kinds of files; returns what was done."""
    by_kind: dict[str, list[Path]] = {}
    for each in sorted(root.rglob("*")):
        if each.is_file() and not each.is_symlink():
            by_kind.setdefault(each.name, []).append(each)
    if not by_kind:
        return "nothing left"
    path = chance.choice(by_kind[chance.choice(sorted(by_kind))])
    how = chance.choice(MUTATIONS)
    if how is parent_link and path.parent == root:
        how = link
    try:
        done = how(path, victim, chance)
    except (ValueError, IndexError, TypeError, yaml.YAMLError, RecursionError):
        done = cut(path, victim, chance)
    return f"{path.relative_to(root)}: {done}"


def _remove(path: Path) -> None:
    path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)


def _places(content: Any) -> list[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = []
    for key, inner in items:
        found.append((content, key))
        found += _places(inner)
    return found
