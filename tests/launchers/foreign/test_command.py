"""The command that rank 0 runs, completed by its ranks, or that resumes an earlier start."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from manyheads.launchers.foreign import command
from manyheads.runner.errors import ConfigurationError
from tests.launchers.foreign.test_meeting import WORLD


def write_run(folder: Path, overrides: list[str]) -> None:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra/overrides.yaml").write_text("".join(f"- {word}\n" for word in overrides))
    (folder / "run.yaml").touch()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "-m", "seed=1,2"], "a sweep starts the ranks of its jobs itself, and torchrun has started 2"),
        (["train", "launcher=spawn"], "launcher=spawn starts its ranks itself"),
        (["train", "launcher.nproc_per_node=4"], "launcher.nproc_per_node=4: torchrun has started 2. Leave it out."),
        (["train", "parallel=dp"], "parallel=dp runs in one process"),
        *((([name, "outputs/run"]), f"{name} starts its processes itself") for name in ("judge", "tune", "scale")),
    ],
)
def test_what_starts_ranks_itself_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        command.completed(words, WORLD, kept=None)
    assert said in str(caught.value)


def test_a_run_is_resumed_without_changes(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("launcher: {name: foreign, world_size: 2}")
    assert command.completed(["resume", str(tmp_path), "trust=[mine]"], WORLD, kept=None)[0] == "resume"
    with pytest.raises(ConfigurationError, match="trainer.epochs=4: in ranks that torchrun has started") as caught:
        command.completed(["resume", str(tmp_path), "trainer.epochs=4"], WORLD, kept=None)
    assert "checkpoints/last.pt" in str(caught.value)


def test_a_flag_that_does_not_work_in_these_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "chosen", lambda words: ModuleType("flags.later"))
    with pytest.raises(ConfigurationError, match="--later does not work in ranks that another program has started"):
        command.completed(["train", "--later"], WORLD, kept=None)


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        (["train", "model=mlp"], ["parallel=ddp"]),
        (["train", "parallel=zero1", "launcher=foreign"], ["parallel=zero1"]),
        (["train", "--config-name", "mine"], []),
        (["train", "experiment=digits_quick"], ["parallel=ddp"]),
    ],
)
def test_the_ranks_that_there_are_are_set(words: list[str], strategy: list[str]) -> None:
    completed = command.completed(words, WORLD, kept=None)
    assert [word for word in completed if word.startswith("parallel=")] == strategy
    assert {"launcher=foreign", "launcher.nproc_per_node=2", "launcher.world_size=2"} <= {*completed}
    assert len(completed) == len(set(completed))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{name: spawn}", "launcher=spawn of this run starts"),
        ("{name: foreign, world_size: 3}", "launcher.world_size=3: torchrun has started 2. Start as many"),
        ("{name: foreign, world_size: 2}", None),
    ],
)
def test_a_run_is_resumed_by_its_own_ranks(tmp_path: Path, section: str, said: str | None) -> None:
    (tmp_path / "run.yaml").write_text(f"launcher: {section}\n")
    words = ["resume", str(tmp_path)]
    if said is None:
        assert command.completed(words, WORLD, kept=None) == words
        return
    with pytest.raises(ConfigurationError) as caught:
        command.completed(words, WORLD, kept=None)
    assert said in str(caught.value)


def test_a_job_of_the_same_name_resumes_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = replace(WORLD, name="torchrun-mine")
    completed = command.completed(["train", "seed=1"], world, kept=None)
    assert completed[-1] == "hydra.run.dir=outputs/torchrun-mine"
    write_run(Path("outputs/torchrun-mine"), [word for word in completed[1:] if not word.startswith("hydra.")])
    assert command.completed(["train", "seed=1"], world, kept=None) == ["resume", "outputs/torchrun-mine"]
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=1 seed=2"):
        command.completed(["train", "seed=2"], world, kept=None)


def test_only_the_same_command_resumes_a_folder(tmp_path: Path) -> None:
    typed = ["train", "model=mlp", f"hydra.run.dir={tmp_path}"]
    completed = command.completed(typed, WORLD, kept=None)
    assert completed[0] == "train"
    write_run(tmp_path, [word for word in completed[1:] if not word.startswith("hydra.")])
    assert command.completed(typed, WORLD, kept=None) == ["resume", str(tmp_path)]
    with pytest.raises(ConfigurationError, match="holds a run of another command line: seed=2"):
        command.completed([*typed, "seed=2"], WORLD, kept=None)
