"""Classes in files that are named by their paths."""

import os
import pickle
import sys
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.locate import load, locate
from manyheads.runner.option.source_file import SourceFile, source_file
from manyheads.runner.option.tree import packages_named


@pytest.fixture(autouse=True)
def _modules():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name", ["/a/b c.py:Net", "/a/my.model.py:Net", "/a/é.py:Nét", "/a:b/c.py:Net", "/a.py:b/c.py:Net"]
)
def test_a_name_that_is_a_file(name):
    path, _, attribute = name.rpartition(":")
    assert source_file(name) == SourceFile(type(source_file(name).path)(path), attribute)
    assert packages_named({"model": {"_target_": name}}) == set()


@pytest.mark.parametrize(
    "name",
    ["my_package.Net", "my_package.py:Net", "a/b.py:Net", "/a/b.py", "/a/b.py:", "/a/b.txt:Net", "/a/b.py:x.y", 3, None]
    + ["/a/../b.py:Net", "//a/b.py:Net", "/a/./b.py:Net", "/a/b.py:Net\n", "/a/b.py:1"],
)
def test_a_name_that_is_none(name):
    assert source_file(name) is None


def test_what_lies_beside_it_can_be_imported(tmp_path):
    (tmp_path / "my_net_of_this_test.py").write_text("import my_helper_of_this_test\nclass Net: pass\n")
    (tmp_path / "my_helper_of_this_test.py").write_text("import my_net_of_this_test as again\n")
    net = load(f"{tmp_path}/my_net_of_this_test.py:Net")
    assert sys.modules["my_helper_of_this_test"].again.Net is net
    assert pickle.loads(pickle.dumps(net)) is net
    place = sys.path.index(str(tmp_path))
    assert Path(sys.path[place + 1]).name == "site-packages"
    assert Path(os.__file__).parent in map(Path, sys.path[:place])


@pytest.mark.parametrize("kind", ["module", "package"])
def test_its_own_folder_comes_before_what_is_installed_but_not_before_python(tmp_path, monkeypatch, kind):
    """``datasets`` is a common name for a folder of code, and a library."""
    installed, own = tmp_path / "site-packages", tmp_path / "own"
    for folder, content in ((installed, "theirs = 1"), (own, "class Mine: pass")):
        name = "datasets_of_this_test" if folder == installed or kind == "package" else ""
        (folder / name).mkdir(parents=True)
        (folder / (f"{name}/__init__.py" if name else "datasets_of_this_test.py")).write_text(content)
    (own / "wave.py").write_text("raise OSError('it hides a module of Python')")
    (own / "port_of_this_test.py").write_text("import wave\nfrom datasets_of_this_test import Mine as Net\n")
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setattr(sys, "path", sorted(sys.path, key=lambda each: "site-packages" in each))
    assert load(f"{own}/port_of_this_test.py:Net").__name__ == "Mine"


@pytest.mark.parametrize("stem", ["torch", "json", "__main__", "two words", "my.dots"])
def test_a_file_with_the_name_of_another_module(tmp_path, stem):
    """It hides none, and is none; its classes can be pickled all the same."""
    (tmp_path / f"{stem}.py").write_text("class Net: pass\n")
    before = sys.modules.get(stem)
    net = load(f"{tmp_path}/{stem}.py:Net")
    assert sys.modules.get(stem) is before
    assert net is load(f"{tmp_path}/{stem}.py:Net")
    assert pickle.loads(pickle.dumps(net)) is net


def test_two_files_of_one_name(tmp_path):
    for number in ("one", "two"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "my_twin_of_this_test.py").write_text(f"Net = {number!r}\n")
    assert [load(f"{tmp_path}/{number}/my_twin_of_this_test.py:Net") for number in ("one", "two")] == ["one", "two"]


def test_a_file_that_fails_is_tried_again(tmp_path):
    path = tmp_path / "json.py"
    path.write_text("raise OSError('not yet')\n")
    with pytest.raises(OSError, match="not yet"):
        load(f"{path}:Net")
    path.write_text("Net = 1  # a file of another size\n")
    assert load(f"{path}:Net") == 1


@pytest.mark.parametrize(("content", "message"), [(None, "there is no such file"), ("", "net.py has no Net. Check")])
def test_what_is_not_there_is_the_configs_fault(tmp_path, content, message):
    if content is not None:
        (tmp_path / "net.py").write_text(content)
    with pytest.raises(ConfigurationError, match=rf"^model\._target_={tmp_path}/net.py:Net.*{message}"):
        locate("model", f"{tmp_path}/net.py:Net")


def test_a_file_that_is_part_of_a_package(tmp_path):
    (tmp_path / "a_part_of_this_test.py").write_text("from .other import Net\n")
    with pytest.raises(ConfigurationError, match=r"relative import.* by its full name: my_package\.module\.Net"):
        locate("model", f"{tmp_path}/a_part_of_this_test.py:Net")
