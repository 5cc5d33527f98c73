"""Of what kind the values in a run's JSON files are: who reads one relies on it, whoever has written the file."""

from typing import Any

from manyheads.runner.errors import ConfigurationError

Numbers = dict[str, float | None]  # a row of a run's tables, by column; None for what was not measured
_NUMBER = (int, float)
RESULT: dict[str, Any] = {
    **dict.fromkeys(("status", "device", "parallel", "precision", "launcher", "weights_sha256"), str),
    **dict.fromkeys(("epochs", "steps", "samples_seen", "world_size", "signal"), int),
    **dict.fromkeys(("train_seconds", "wall_seconds", "samples_per_second", "objective"), _NUMBER),
    **dict.fromkeys(("metrics", "best", "error", "files"), dict),
    "peak_memory_mb": list,
}
PROVENANCE: dict[str, Any] = {
    **dict.fromkeys(("id", "command", "directory", "commit", "host", "user", "system", "launcher", "signature"), str),
    "submitted_from": str,
    **dict.fromkeys(("versions", "packages", "cpu", "environment", "own", "own_code", "data"), dict),
    **dict.fromkeys(("ranks", "format"), int),
    "clean": bool,
    **dict.fromkeys(("devices", "nodes"), list),
}


def wrong_keys(content: dict[str, Any], kinds: dict[str, Any]) -> list[str]:
    """Keys whose values are of another kind; null is of every kind. Of a mapping its own values are looked at too."""
    found = [key for key, kind in kinds.items() if content.get(key) is not None and not _is(content[key], kind)]
    numbers = [name for name in ("metrics", "best") if name in kinds and name not in found]
    found += [name for name in numbers if not all(_is(each, _NUMBER) for each in (content.get(name) or {}).values())]
    texts = [name for name in ("versions", "devices", "packages") if name in kinds and name not in found]
    for name in texts:
        values = content.get(name) or []
        values = values.values() if isinstance(values, dict) else values
        if not {*map(type, values)} <= {str, type(None)}:  # of hundreds of packages
            found.append(name)
    return found


def right(content: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """The content without what has another type than it should be."""
    wrong = wrong_keys(content, kinds)
    return {key: value for key, value in content.items() if key not in wrong}


def check(content: dict[str, Any], kinds: dict[str, Any], path: object) -> dict[str, Any]:
    """The content. Raises ConfigurationError that names the first value of another kind than it should be."""
    for key in wrong_keys(content, kinds):
        raise ConfigurationError(f"{path} cannot be read: {key} has another type. Restore it from a copy.")
    return content


def _is(value: Any, kind: Any) -> bool:
    return value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
