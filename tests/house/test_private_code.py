"""private_code.yaml lists the private code of others that is used, and the installed versions have all of it."""

import importlib
import inspect
from functools import cache
from importlib.metadata import packages_distributions, version
from typing import Any

import pytest
import yaml

from tests.house.private_code import LIST, private_names

LIBRARIES = yaml.safe_load(LIST.read_text())
LISTED = [name for library in LIBRARIES for names in library["used"].values() for name in names]

NEEDED = ("hydra.", "omegaconf.", "torch.", "multiprocessing.")  # tests of what needs the others use them
used = cache(private_names)


def last(name: str) -> str:
    return name.rpartition(".")[2]


def test_the_list_has_what_is_used():
    listed = {last(name) for name in LISTED}
    unlisted = {name: files for name, files in used().items() if last(name) not in listed}
    assert unlisted == {}, f"use public code instead; if there is none, add the name to {LIST.name}"


def test_the_list_has_nothing_else():
    names = {last(name) for name in used()}
    assert [name for name in LISTED if last(name) not in names] == [], f"remove what is no longer used from {LIST.name}"
    assert len({*LISTED}) == len(LISTED)


@pytest.mark.parametrize("name", [name for name in LISTED if name.startswith(NEEDED)])
def test_the_installed_version_has(name):
    package = name.partition(".")[0]
    if not exists(name):
        distribution = packages_distributions().get(package, [package])[0]
        files = next(files for used_name, files in used().items() if last(used_name) == last(name))
        installed = version(distribution) if package in packages_distributions() else "of this Python"
        pytest.fail(f"{distribution} {installed} has no {name}, which {', '.join(sorted(files))} use: {LIST.name}")


def exists(name: str) -> bool:
    """Whether a name can be looked up, or is mentioned in the source of its owner, which sets it on instances."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for number, part in enumerate(parts[count:], count + 1):
            if not hasattr(value, part):
                return number == len(parts) and part in inspect.getsource(value)
            value = getattr(value, part)
        return True
    return False
