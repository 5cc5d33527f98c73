"""Networks and devices, as YAML files: the package's own, by name, and the user's, by path."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from manyheads.runner.answers.scale.simulator.network import ALGORITHMS, Cluster, Link
from manyheads.runner.errors import ConfigurationError, UnknownName
from manyheads.runner.run import yaml_text
from manyheads.runner.wording import nearest

HERE = Path(__file__).resolve().parent
NETWORKS, DEVICES = HERE / "networks", HERE / "devices"
NETWORK, DEVICE = "--network", "--device"


@dataclass(frozen=True)
class Device:
    """A device and the machines that contain it.

    ``memory``: in bytes; ``per_machine``: devices in a machine; ``link``: between them; ``price``: per hour, 0 if
    unknown.
    """

    memory: float
    per_machine: int
    link: Link
    price: float = 0.0


def names(folder: Path) -> list[str]:
    """The names that can be chosen in NETWORKS or DEVICES."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def network(typed: str) -> Link:
    """The network between machines. ``typed``: a name, or the path of a YAML file. Raises ConfigurationError."""
    return _link(_content(typed, NETWORKS, NETWORK), NETWORK, typed)


def device(typed: str) -> Device:
    """The device and its link. ``typed``: a name, or the path of a YAML file. Raises ConfigurationError."""
    content = _content(typed, DEVICES, DEVICE)
    _check_keys(content, Device, DEVICE, typed)
    inside = content["link"]
    if not isinstance(inside, dict):
        raise _wrong(DEVICE, typed, "link", inside, "the keys of a link, such as latency and bandwidth")
    numbers = {key: _number(content[key], DEVICE, typed, key) for key in ("memory", "price") if key in content}
    count = content["per_machine"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise _wrong(DEVICE, typed, "per_machine", count, "a whole number, at least 1")
    return Device(**numbers, per_machine=count, link=_link(inside, DEVICE, typed, "link."))


def cluster(inside: Device, between: Link) -> Cluster:
    """A cluster of machines with these devices. ``between``: the network between machines."""
    return Cluster(inside.per_machine, inside.link, between)


def _content(typed: str, folder: Path, flag: str) -> Mapping[str, Any]:
    available = names(folder)
    path = folder / f"{typed}.yaml" if typed in available else Path(typed)
    if typed not in available and path.suffix not in (".yaml", ".yml"):
        raise UnknownName(
            f"{flag} {typed} is not known.{nearest(typed, available)} Allowed: {', '.join(available)}, or the "
            "path of a YAML file.",
            key=flag,
            value=typed,
            allowed=available,
        )
    try:
        content = yaml_text.parse(path.read_text())
    except (OSError, ValueError, yaml_text.Error) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError.at(flag, typed, f" cannot be read: {reason}.") from None
    if not isinstance(content, dict):
        raise ConfigurationError.at(flag, typed, " cannot be read: it has no keys, such as latency and bandwidth.")
    return content


def _check_keys(content: Mapping[str, Any], kind: type, flag: str, typed: str, prefix: str = "") -> None:
    """Refuse keys that are unknown or missing."""
    needed = {field.name: field.default is MISSING for field in fields(kind)}
    for key in content:
        if key not in needed:
            raise UnknownName(
                f"{flag} {typed}: {prefix}{key} is not a key.{nearest(str(key), needed)} Allowed: {', '.join(needed)}.",
                key=f"{prefix}{key}",
                value=content[key],
                allowed=[*needed],
            )
    for key, is_needed in needed.items():
        if is_needed and key not in content:
            raise ConfigurationError(f"{flag} {typed}: {prefix}{key} is missing.", key=f"{prefix}{key}")


def _link(content: Mapping[str, Any], flag: str, typed: str, prefix: str = "") -> Link:
    _check_keys(content, Link, flag, typed, prefix)
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if key == "curve":
            values[key] = _curve(value, flag, typed, name)
        elif key == "algorithms":
            if not isinstance(value, list) or not value or not all(algorithm in ALGORITHMS for algorithm in value):
                raise _wrong(flag, typed, name, value, f"a list of {', '.join(ALGORITHMS)}")
            values[key] = tuple(value)
        else:
            values[key] = _number(value, flag, typed, name)
    return Link(**values)


def _curve(points: Any, flag: str, typed: str, key: str) -> tuple[tuple[float, float], ...]:
    """Pairs of a payload in bytes and the fraction of the bandwidth that it achieves, in ascending order."""
    allowed = "pairs of bytes, ascending, and the fraction of the bandwidth that payloads of that size achieve"
    if not isinstance(points, list) or not points or not all(isinstance(p, list) and len(p) == 2 for p in points):
        raise _wrong(flag, typed, key, points, allowed)
    curve = tuple((_number(size, flag, typed, key), _number(part, flag, typed, key)) for size, part in points)
    if any(after[0] <= before[0] for before, after in pairwise(curve)):
        raise _wrong(flag, typed, key, points, allowed)
    return curve


def _number(value: Any, flag: str, typed: str, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise _wrong(flag, typed, key, value, "a number above 0")
    return float(value)


def _wrong(flag: str, typed: str, key: str, value: Any, allowed: str) -> ConfigurationError:
    return ConfigurationError(
        f"{flag} {typed}: {key}={value} is not allowed. Allowed: {allowed}.", key=key, value=value
    )
