"""Reads and writes YAML with the same values as Hydra does, but much faster, and within limits."""

import math
import pickle
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml

MOST_VALUES = 10_000  # in a text, with every alias written out
MOST_LEVELS = 100  # of nested lists and mappings
Error = yaml.YAMLError
_FLOAT, _TIMESTAMP = (f"tag:yaml.org,2002:{name}" for name in ("float", "timestamp"))
_INDENTED = re.compile(rf"^[ \t?-]{{{MOST_LEVELS}}}", re.MULTILINE)
_LONG_NUMBER = re.compile(r"(:[0-5]?[0-9]){100}")  # in base 60, which takes quadratic time
# YAML 1.1 reads 1e-3 as text. Source: OmegaConf's own loader, of 2.3 and 2.4.
_NUMBER = re.compile(
    r"^(?:[-+]?[0-9]+(_[0-9]+)*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)"
    r"|\.[0-9]+(_[0-9]+)*([eE][-+][0-9]+)?|[-+]?[0-9]+(_[0-9]+)*(:[0-5]?[0-9])+\.[0-9_]*"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)
Flat = dict[str, Any]  # a config by dotted keys, lists as values


class YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain values alone; numbers as Hydra does, and dates as text."""


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes what ``YamlLoader`` reads as the same values."""


YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_FLOAT, _TIMESTAMP)]
    for first, resolvers in YamlLoader.yaml_implicit_resolvers.items()
}
for _class in (YamlLoader, Dumper):  # so that a text that looks like a number is quoted
    _class.add_implicit_resolver(_FLOAT, _NUMBER, list("-+0123456789."))


def parse(text: str) -> Any:
    """The content of a text that anybody may have written.

    Raises ValueError for more than MOST_LEVELS levels, MOST_VALUES values with aliases expanded, or a number of many
    parts, and otherwise what YAML raises.
    """
    if _LONG_NUMBER.search(text):
        raise ValueError("it holds a number of a hundred parts, 1:1:1...")
    if text.count("[") + text.count("{") > MOST_LEVELS or _INDENTED.search(text):  # else it cannot have more levels
        _refuse_deep(text)
    loader = YamlLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if "&" in text and _nodes(node, {}) > MOST_VALUES:  # without an anchor there is no alias
            raise ValueError(f"with its aliases expanded it has more than {MOST_VALUES} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_deep(text: str) -> None:
    """Count levels by events, one by one: building values would recurse for each level, until the stack overflows."""
    loader, levels = YamlLoader(text), 0
    try:
        while levels <= MOST_LEVELS:
            if not loader.check_event():
                return
            event = loader.get_event()
            levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
    except yaml.MarkedYAMLError as error:
        if error.problem != "exceeded maximum nesting depth":  # of libyaml 0.2.6, which looks 1000 levels ahead
            raise
    finally:
        loader.dispose()
    raise ValueError(f"its lists and mappings are nested more than {MOST_LEVELS} levels deep")


def dump(content: Any) -> str:
    """The content as text, keys in their order."""
    return _dump(pickle.dumps(content))


@lru_cache(maxsize=1024)
def _dump(pickled: bytes) -> str:
    return yaml.dump(pickle.loads(pickled), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def _nodes(node: yaml.Node, counted: dict[int, float]) -> float:
    """The number of nodes in this one, itself included; an alias counts as what it stands for."""
    if id(node) not in counted:
        counted[id(node)] = math.inf  # in case it contains itself
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        inner = [child for part in parts for child in (part if isinstance(part, tuple) else (part,))]
        counted[id(node)] = 1 + sum(_nodes(child, counted) for child in inner)
    return counted[id(node)]


def flatten(section: Mapping[str, Any], prefix: str = "") -> Flat:
    """The config with one dotted key for each value; lists are values."""
    flat: Flat = {}
    for name, value in section.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
