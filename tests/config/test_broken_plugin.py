"""Plugins of others for Hydra that cannot be imported."""

import sys
from types import ModuleType

import pytest
from hydra.core.plugins import Plugins

from manyheads.runner.config.hydra_errors import broken_plugin
from manyheads.runner.respond import respond

ON_PYTHON_3_11 = "from dataclasses import dataclass\n@dataclass\nclass A: pass\n@dataclass\nclass B:\n    a: A = A()\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a plugin with this code, and returns the scan that Hydra does for every command."""
    (tmp_path / "hydra_plugins" / "hydra_theirs").mkdir(parents=True)
    about = tmp_path / "hydra_theirs_sweeper-1.2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hydra-theirs-sweeper\nVersion: 1.2.0\n")
    (about / "RECORD").write_text("hydra_plugins/hydra_theirs/__init__.py,,\nhydra_plugins/hydra_theirs/core.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = ModuleType("hydra_plugins")
    found.__path__ = [str(tmp_path / "hydra_plugins")]

    def install(code):
        (tmp_path / "hydra_plugins" / "hydra_theirs" / "__init__.py").touch()
        (tmp_path / "hydra_plugins" / "hydra_theirs" / "core.py").write_text(code)
        return lambda: Plugins._scan_all_plugins([found])

    yield install
    for name in [name for name in sys.modules if "hydra_theirs" in name]:
        del sys.modules[name]


@pytest.mark.parametrize(("code", "reason"), [(ON_PYTHON_3_11, "ValueError: mutable default"), ("1 / 0", "ZeroDivi")])
def test_it_is_named_in_one_sentence(installed, capsys, code, reason):
    assert respond("", installed(code)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the Hydra plugin hydra-theirs-sweeper 1.2.0 cannot be imported with Python ")
    assert f": {reason}" in error
    assert error.endswith(". Uninstall it, or install another version.\n")


def test_hydra_goes_on_without_one_that_lacks_a_library(installed):
    with pytest.warns(UserWarning, match=r"Error importing 'hydra_plugins\.hydra_theirs\.core'"):
        installed("import a_library_that_is_missing")()


def test_other_errors_are_none_of_a_plugin():
    assert broken_plugin(ValueError("no")) is None
