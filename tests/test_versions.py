"""The versions that tests and CI run with: .ci/versions.txt, written by ``make lock``."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT

FILE = ROOT / ".ci" / "versions.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS, GROUPS = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]


def of_group(name: str) -> list[str]:
    """The requirements of a dependency group, with those of the project's extras that it names."""
    found = []
    for each in GROUPS[name]:
        if isinstance(each, dict):
            found += of_group(each["include-group"])
        elif (requirement := Requirement(each)).name == "manyheads":
            found += [one for extra in sorted(requirement.extras) for one in EXTRAS[extra]]
        else:
            found.append(each)
    return found


def known() -> dict[str, list[Version]]:
    """The versions of each package; there may be several, for different Pythons."""
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", FILE.read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


@pytest.mark.parametrize("requirement", [*PROJECT["project"]["dependencies"], *of_group("ci")])
def test_every_dependency_has_a_known_version_within_its_range(requirement):
    wanted = Requirement(requirement)
    versions = known()[canonicalize_name(wanted.name)]
    assert all(version in wanted.specifier for version in versions), "run make lock"


def test_every_version_has_hashes_and_no_address():
    text = FILE.read_text()
    assert not re.search(r"://|^-", text, re.MULTILINE)
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^\n]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n?)+", block), block


def test_developers_packages_are_no_extras():
    assert not {"dev", "docs", "test", "bench"} & {*EXTRAS}
