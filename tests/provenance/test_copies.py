"""Which copies replace the files of the user's own past runs: property tests of the rule, without any training."""

import json
import os
from pathlib import Path

import pytest

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.source_file import COPIES
from manyheads.runner.option.tree import files_named
from manyheads.runner.provenance.copies import copies, import_copies
from manyheads.runner.provenance.kept_files import keep_files
from manyheads.runner.provenance.started_in import refuse_open_place
from manyheads.runner.run import seal
from manyheads.runner.run.run_folder import RunFolder

OTHERS = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files to another user")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(COPIES, "")


@pytest.fixture
def project(tmp_path):
    """The user's folder with a file, which imports another one and a package."""
    (tmp_path / "mine" / "part").mkdir(parents=True)
    (tmp_path / "mine" / "__pycache__").mkdir()
    for name in ("helper", "part/__init__", "part/inner"):
        (tmp_path / "mine" / f"{name}.py").touch()
    (tmp_path / "mine" / "net.py").write_text("import helper, part.inner")
    return tmp_path / "mine"


@pytest.fixture
def recorded(tmp_path, project):
    """Record a run that names the user's file; ``planned``: it has not started, so it has no copies."""

    def record(name: str, *, planned: bool = False) -> RunFolder:
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        folder.write_config({"model": {"_target_": f"{project}/net.py:Net"}})
        kept = {} if planned else keep_files(folder, folder.read_config())
        seal.record(folder.path, {"run.yaml": folder.config.read_bytes(), **kept})
        if not planned:
            own_code = seal.digests({str(path): path.read_bytes() for path in project.rglob("*.py")})
            folder.provenance.write_text(json.dumps({"own_code": own_code}))
        return folder

    return record


def used(folder: RunFolder) -> Path:
    (file,) = files_named(folder.read_config()).values()
    return file.in_use()


@as_root
@pytest.mark.parametrize("opened", [".", "net.py", "helper.py", "part", "part/inner.py", "__pycache__"])
def test_are_used_if_others_can_write_to_anything_that_is_imported(recorded, project, opened, tmp_path, capfd):
    folder = recorded("past")
    import_copies(folder)
    assert used(folder) == project / "net.py"
    os.chown(project / opened, OTHERS, OTHERS)
    import_copies(folder)
    assert used(folder).is_relative_to(tmp_path / "state")
    assert used(folder).read_text() == (project / "net.py").read_text()
    assert f"others can write to {project / opened}: its copy" in capfd.readouterr().err
    with pytest.raises(ConfigurationError, match=f"run once: .* trust {project}"):
        refuse_open_place(folder.read_config())


def test_are_used_for_missing_files_and_for_changed_ones_only_in_new_runs(recorded, project):
    folder = recorded("past")
    (project / "net.py").write_text("edited")
    assert copies(folder, folder.read_config(), edited=False) == {}
    assert [*copies(folder, folder.read_config())] == ["model._target_"]
    (project / "net.py").unlink()
    assert [*copies(folder, folder.read_config(), edited=False)] == ["model._target_"]
    assert copies(folder, folder.read_config(), chosen={"model"}) == {}


@as_root
def test_must_be_the_same_for_all_runs_of_a_sweep_and_exist(recorded, project):
    runs = [recorded("0")]
    (project / "helper.py").write_text("edited")
    runs += [recorded("1"), recorded("2", planned=True)]
    import_copies(*runs)
    os.chown(project, OTHERS, OTHERS)
    import_copies(runs[0])
    with pytest.raises(ConfigurationError, match="helper.py changed between these runs"):
        import_copies(*runs[:2])
    with pytest.raises(ConfigurationError, match="its copy .* is missing or not yours. If you trust everything"):
        import_copies(*runs[1:])
