"""From the command line to what Hydra shall compose, and whose that is."""

import pickle
from pathlib import Path

import pytest
import yaml
from hydra.core.utils import setup_globals

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.lookup import CONF
from manyheads.runner.config.origin import Origin, resolve_origin
from manyheads.runner.config.saved import NAME
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from manyheads.runner.trust.trust_store import Trust
from tests.in_process import config

SECTION = {"hydra": {"callbacks": {"evil": {"_target_": "os.mkdir"}}}}


@pytest.fixture(autouse=True)
def _own_state(monkeypatch, tmp_path):
    """What a test trusts is gone after it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def settled(*arguments: str, home: Path = CONF.parent) -> tuple[tuple[str, ...], Origin]:
    line, origin = resolve_origin(CommandLine(arguments, home))
    return line.arguments, origin


@pytest.fixture
def theirs(tmp_path):
    """Somebody's folder; to be called with the configs in it."""

    def write(**files: dict) -> str:
        for name, content in files.items():
            path = tmp_path / "theirs" / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(content))
        return str(tmp_path / "theirs")

    return write


class TestWhoseItIs:
    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("-m", "seed=1", "parallel=ddp,dp"),
            ("--config-path", str(CONF)),
            ("--config-path", "conf", "--config-name", "config"),
            ("--config-dir", str(CONF / "model")),
            (f"hydra.searchpath=[file://{CONF}]",),
            ("hydra/launcher=basic", "hydra.run.dir=../x/y", "data.root=../.data", "data.root=/data"),
        ],
    )
    def test_the_projects_own_is_the_users(self, arguments):
        assert settled(*arguments) == (arguments, Origin())

    @pytest.mark.parametrize("flags", [("--config-path", "{}"), ("--config-dir", "{}"), ("hydra.searchpath=[{}]",)])
    def test_every_other_folder_is_somebody_elses_until_it_is_trusted(self, theirs, flags):
        folder = theirs(config={"defaults": [{"model": "x"}]}, model__x={"a": 1})
        typed = (*(flag.format(folder) for flag in flags), "x=1")
        with pytest.raises(ConfigurationError, match=rf"configs that are composed can run any code.* trust {folder}"):
            settled(*typed, "trust=[a]")
        seal.trust(Path(folder), None)
        assert settled(*typed) == (typed, Origin())

    def test_trust_is_asked_for_only_then(self, theirs, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        (tmp_path / "manyheads.yaml").write_text("trust: [no package]")
        assert settled("seed=1") == (("seed=1",), Origin())
        with pytest.raises(ConfigurationError, match="is not the name of a package"):
            settled("--config-path", theirs(run=config()), "--config-name", "run")

    def test_a_folder_that_is_missing_is_named(self):
        with pytest.raises(ConfigurationError, match="/nowhere is not a folder"):
            settled("--config-path", "/nowhere")

    @pytest.mark.parametrize("place", ["pkg://their_package.conf", "pkg://", "structured://their_package"])
    def test_packages_are_imported_only_if_they_are_trusted(self, place):
        for arguments in [("--config-path", place), (f"hydra.searchpath=['{place}']",)][place[0] == "s" :]:
            with pytest.raises(ConfigurationError, match="names code outside the allowed classes"):
                settled(*arguments)
        if "conf" in place:
            assert settled("--config-path", place, "trust=their_package")[1].trust.packages == ("their_package",)

    def test_a_rerun_from_a_pickle_is_refused(self):
        with pytest.raises(ConfigurationError, match="unpickles"):
            settled("--experimental-rerun", "config.pickle")


class TestNamesThatLeadOut:
    """Typed names of options, past every look at the folders that they were typed for."""

    @pytest.mark.parametrize(
        "override",
        [
            "model=../../theirs/x",
            "model=/tmp/x",
            "model=[small_cnn,.hidden/x]",
            "model=small_cnn,a//x",
            "experiment=[../x]",
            "+hydra/launcher=../x",
        ],
    )
    def test_are_refused(self, override):
        with pytest.raises(ConfigurationError, match="Name another folder with --config-dir"):
            settled(override)

    def test_of_a_group_of_a_trusted_folder_too(self, theirs):
        folder = theirs(group__x={})
        seal.trust(Path(folder), None)
        with pytest.raises(ConfigurationError, match="Name another folder with --config-dir"):
            settled("--config-dir", folder, "+group=../../x")

    @pytest.mark.parametrize("name", ["../x", "/x", ".hidden/x", "a/../../x"])
    def test_a_primary_config_elsewhere_is_refused(self, name):
        with pytest.raises(ConfigurationError, match="Name its folder with --config-path"):
            settled("--config-name", name)


class TestASavedConfig:
    @pytest.mark.parametrize("flags", [("--config-path", "{}"), ("--config-path={}",), ("-cp", "{}")])
    def test_is_led_to_what_can_be_composed(self, theirs, flags):
        folder = theirs(run=config())
        arguments, origin = settled(*(flag.format(folder) for flag in flags), "-cn", "run", "seed=2", "trust=[a]")
        assert arguments[-4:] == ("--config-path", str(CONF), "--config-name", NAME)
        assert origin.composed_from == f"{folder}/run.yaml"
        assert origin.trust.packages == ("a",)

    def test_in_a_hidden_folder(self, theirs):
        folder = theirs(**{".hydra__config": config()})
        for arguments in (("-cp", f"{folder}/.hydra"), ("-cp", folder, "-cn", ".hydra/config")):
            assert settled(*arguments)[0][-1] == NAME

    def test_a_relative_path_is_taken_from_home(self, theirs):
        folder = theirs(config=config())
        assert settled("-cp", "theirs", home=Path(folder).parent)[0][-1] == NAME

    def test_beside_files_that_hydra_wrote(self, theirs):
        folder = theirs(run=config(), multirun=SECTION, **{".hydra__hydra": SECTION})
        assert settled("-cp", folder, "-cn", "run")[0][-1] == NAME
        for name in ("multirun", "other"):
            with pytest.raises(ConfigurationError, match="configs that are composed"):
                settled("-cp", folder, "-cn", name)
        for name in (".hydra/hydra", ".hydra/other"):
            with pytest.raises(ConfigurationError, match="is not allowed"):
                settled("-cp", folder, "-cn", name)

    def test_with_hydras_section_it_is_refused(self, theirs):
        folder = theirs(run={**config(), **SECTION})
        with pytest.raises(ConfigurationError, match=r"run\.yaml: hydra: "):
            settled("-cp", folder, "-cn", "run")

    def test_unless_the_user_recorded_it(self, theirs):
        path = Path(theirs(run={**config(), **SECTION})) / "run.yaml"
        seal.record(path.parent, {path.name: path.read_bytes()})
        arguments, origin = settled("-cp", str(path.parent), "-cn", "run")
        assert arguments[-1] == NAME
        assert origin.trust is None

    def test_whose_part_has_a_list_of_more_files(self, theirs):
        """Hydra would take it for one, since it finds the parts as options."""
        saved = config()
        saved["scheduler"]["defaults"] = [{"/optimizer@hydra.callbacks.x": "saved"}]
        with pytest.raises(ConfigurationError, match=r"scheduler\.defaults"):
            settled("-cp", theirs(run=saved), "-cn", "run")

    def test_with_another_folder_beside_it(self, theirs, tmp_path):
        folder = theirs(run=config())
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "x.yaml").write_text(yaml.safe_dump(SECTION))
        with pytest.raises(ConfigurationError, match=r"--config-dir .*more: configs that are composed"):
            settled("-cp", folder, "-cn", "run", "--config-dir", str(tmp_path / "more"))

    @pytest.mark.parametrize("content", ["a: 1", "defaults: [model: small_cnn]", "seed: 1"])
    def test_anything_else_is_left_to_hydra(self, tmp_path, content):
        (tmp_path / "config.yaml").write_text(content)
        seal.trust(tmp_path, None)
        arguments = ("--config-path", str(tmp_path), "seed=2")
        assert settled(*arguments)[0] == arguments


def task(config, *, origin):
    return config, origin


class TestTheTask:
    ORIGIN = Origin(Trust(("a",)), "b")

    def test_knows_it_wherever_it_runs(self):
        bound = pickle.loads(pickle.dumps(self.ORIGIN.bind(task)))
        assert bound({}) == ({}, self.ORIGIN)
        assert Origin.of(bound) == self.ORIGIN

    def test_stays_the_task_for_hydra(self):
        assert self.ORIGIN.bind(task).__wrapped__ is task

    def test_one_of_another_application_has_none(self):
        assert Origin.of(setup_globals) == Origin()
