import errno
import pickle
import re
import signal
import sys
import threading
from pathlib import Path

import pytest
import yaml
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.runner.config.command_line import CommandLine
from manyheads.runner.config.fresh_folder import FreshFolder
from manyheads.runner.config.hydra_errors import check_experiment, explained
from manyheads.runner.config.lookup import CONF, NAMED, options
from manyheads.runner.errors import ConfigurationError, Ended, Failure, Interrupted, RunFailed, report
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.respond import respond
from tests import in_process
from tests.conftest import FAST, ROOT, RUN, execute
from tests.tail import tail

PARALLEL = f"Allowed: {', '.join(options('parallel'))}"
FAILURE = Failure(rank=1, exit_code=3, type="OSError", message="disk full", traceback="Traceback ...\n")


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below ``path`` with its content and the time of its last change."""
    found = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns) for file in found}


def assert_refused(done, *fragments: str) -> None:
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert re.fullmatch(r"([^\n]+, after \d+ s[^\n]*\n)*error: [^\n]+\n", done.err), done.err  # on a busy machine
    assert done.out == ""  # nothing was launched: that is the first thing to be logged
    for fragment in fragments:
        assert fragment in done.err


# Overrides, and what the error must say: the value or key at fault, what is allowed, the key to set.
BAD = [
    (["parallel=dpp"], ["parallel=dpp", "Did you mean dp or ddp", "Allowed: ", *options("parallel")]),
    (["model=torchvision/resnet"], ["model=torchvision/resnet", *options("model")]),
    (["parallel=null"], ["must be a string", " --help` lists"]),
    (["~parallel"], ["parallel", PARALLEL]),
    (["+trainer.epochs=3"], ["+trainer.epochs=3: trainer.epochs is already set. Write ++trainer.epochs=3, which"]),
    (["+parallel=ddp"], ["+parallel=ddp", "Write parallel=ddp"]),
    ([f"launcher={'a' * 300}"], ["aaa: there is no such option", "Allowed: ", *options("launcher")]),
    (["paralel=ddp"], ["paralel", "Did you mean parallel?"]),
    (["logger=[tensorbord]"], ["logger=tensorbord: there is no such option. Did you mean tensorboard?"]),
    (["trainer.epoch=3"], ["trainer.epoch ", "Did you mean trainer.epochs?", "--cfg job"]),
    (["model=net.py"], ["model=net.py: there is no such option. Name the class in it, too: model=net.py:<class>."]),
    (["model=net.Net"], ["A class is chosen with model=custom model._target_=net.Net."]),
    (["optimizer=rmsprop"], ["A class is chosen with optimizer=custom optimizer._target_=torch.optim.<class>."]),
    (["optimizer=RMSprop"], ["A class is chosen with optimizer=custom optimizer._target_=torch.optim.RMSprop."]),
    (["scheduler=StepLR"], ["scheduler=StepLR", "Did you mean step?"]),
    (["model=custom", "model._target_=a.B", "model.width=8"], ["Write +model.width=8, which passes it to your class."]),
    (["hydra.job.chdir=maybe"], ["Error merging override hydra.job.chdir=maybe: Value 'maybe' is not a valid bool"]),
    (["lr=0.1"], ["lr ", "Did you mean optimizer.lr?", "--cfg job"]),
    (
        ["optimizer.betas=[0.9,0.99]"],
        ["optimizer.betas", "optimizer=adamw", "Leave it out with any other option."],
    ),
    (["parallel=dp", "parallel.bucket_cap_mb=1"], ["parallel.bucket_cap_mb", "parallel=ddp"]),
    (["+foo.bar=1"], ["foo", "Allowed: seed, ", *GROUPS]),
    (["+trainer.foo=1"], ["trainer.foo", "Allowed: trainer.epochs"]),
    (["trainer.epochs=many"], ["trainer.epochs", "many", "Allowed: an integer of at least 1"]),
    (["trainer.epochs="], ["trainer.epochs", "Allowed: an integer of at least 1"]),
    (["trainer.epochs=0"], ["trainer.epochs=0", "Allowed: an integer of at least 1"]),
    (["trainer.epochs=1.5"], ["trainer.epochs=1.5", "Allowed: an integer of at least 1"]),
    (["trainer.log_every=0"], ["trainer.log_every=0", "Allowed: an integer of at least 1"]),
    (["trainer.deterministic=1"], ["trainer.deterministic=1", "Allowed: true or false"]),
    (["optimizer.lr=-1"], ["optimizer.lr=-1", "Allowed: a number above 0"]),
    (["parallel=ddp", "parallel.timeout=inf"], ["parallel.timeout", "Allowed: a number above 0"]),
    (["checkpoint.every=2days"], ["checkpoint.every", "2days", "Allowed: 1epoch"]),
    (["seed=-1"], ["seed=-1", "Allowed: an integer from 0 to 9223372036854775807"]),
    (["loss._target_=nothing"], ["loss._target_", "nothing", "Allowed: the dotted name of a class"]),
    (["parallel=ddp", "data.batch_size=65"], ["data.batch_size=65", "2 ranks", "data.batch_size=64 or 66"]),
    (["data=imagefolder"], ["data.root is not set", "data.root=<value>"]),
    (["data=imagefolder", "data.root=/nowhere"], ["data.root=/nowhere", "there is no such folder", "Set data.root"]),
    (["data=imagefolder", "data.root=null"], ["data.root=null", "Allowed: text"]),
    (["data=mnist", "data.download=false"], ["data=mnist", "data/MNIST/raw", "data.download", "data.root"]),
    (["model=custom"], ["model._target_ is not set", "model._target_=<value>"]),
    (["precision=tf32"], ["precision=tf32", "GPU", "Use precision=fp32"]),
    (["trainer.device=cuda"], ["trainer.device=cuda", "GPU", "Set trainer.device=cpu"]),
    (["parallel=ddp", "parallel.backend=nccl"], ["parallel.backend=nccl", "Set parallel.backend=gloo"]),
    (["parallel=ddp", "parallel.sync_batchnorm=true"], ["parallel.sync_batchnorm=true", "GPUs", "Set it to false"]),
    (["parallel=dp", "trainer.compile=default"], ["trainer.compile=default", "Set trainer.compile=none"]),
    (["launcher.nproc_per_node=2"], ["launcher.nproc_per_node=2", "parallel=single", "parallel=ddp"]),
    (["checkpoint.load=/nowhere.pt"], ["checkpoint.load=/nowhere.pt", "no such file"]),
    (["trainer.evaluate_only=true"], ["trainer.evaluate_only=true", "Set checkpoint.load="]),
    (["a=["], ["a=[", "group=option or key=value"]),
    (["trainer.epochs"], ["trainer.epochs", "group=option or key=value"]),
    (["model=small_cnn,resnet18"], ["model=small_cnn,resnet18", "--multirun"]),
    (["~nothing"], ["nothing"]),
    (["data=mnist", "data.root=${now:%S}"], ["data.root=${now:%S}", "Allowed: plain values", "Set data.root"]),
    (
        ["data=mnist", "data.root=${hydra:runtime.cwd}"],
        ["data.root=${hydra:runtime.cwd}", "Allowed: plain values", "Set data.root"],
    ),
    (["data=mnist", "data.root=${nothing}"], ["data.root", "nothing", "Set data.root"]),
]


# Likewise, where it is the command that refuses, and not what checks a composed config.
BAD_COMMANDS = [
    (["experiment=digits_quik"], ["experiment=digits_quik", "Did you mean digits_quick?", *options("experiment")]),
    (["experiment=[debug,mnist_horovd]"], ["experiment=mnist_horovd", "Did you mean mnist_horovod?"]),
    (["hydra/launcher=nothing"], ["hydra/launcher/nothing"]),
    (["hydra.run.dir=/dev/null/run"], ["hydra.run.dir=/dev/null/run", "Name a folder that can"]),
    (["hydra.run.dir=mine", "trainer.epochs=0"], ["trainer.epochs=0"]),
    (["--config-name", "nothing"], ["nothing"]),
    (["--config-path", "/nowhere"], ["/nowhere"]),
    (["-m", "parallel=single,dpp", "trainer.epochs=0"], ["parallel=dpp", "Did you mean dp or ddp"]),
]
SOME = [each for each in BAD if each[0] in (["parallel=dpp"], ["trainer.epochs=0"], ["parallel=null"], ["a=["])]


def named(cases):
    """The cases as parameters, each named by what is typed."""
    return {"argvalues": cases, "ids": [" ".join(getattr(each, "values", each)[0]) for each in cases]}


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("", "is missing. Write it above all other lines of "),
        ("# mine\n# @package _global_\n", "stands in line 2, where Hydra doesn't read it. Move it above all other"),
        ("seed: 2\n\n  # @package _global_\n", "stands in line 3, "),
        ("\n# @package _global_\n", None),
        ("# @package trainer\n", None),
    ],
)
def test_an_experiment_whose_keys_hydra_would_set_below_it(tmp_path, head, said):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"{head}trainer: {{epochs: 1}}\n")
    if said is None:
        check_experiment(OmegaConf.create(["experiment=mine"]), (CONF, tmp_path))
        return
    with pytest.raises(ConfigurationError, match=f"experiment=mine: # @package _global_ {said}"):
        check_experiment(OmegaConf.create(["experiment=mine"]), (CONF, tmp_path))


def test_the_same_where_hydra_itself_complains(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# mine\n# @package _global_\ndefaults:\n  - override /model: mlp\ntrainer: {epochs: 1}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    overrides = ("experiment=mine", f"hydra.searchpath=[file://{tmp_path}]")
    with (
        pytest.raises(ConfigurationError, match=r"experiment=mine: # @package _global_ stands in line 2"),
        explained(CommandLine(overrides, ROOT)),
    ):
        in_process.config(*overrides)


@pytest.mark.parametrize(("overrides", "fragments"), **named(BAD))
def test_bad_values_are_refused(overrides, fragments):
    with pytest.raises(ConfigurationError) as error, explained(CommandLine(tuple(overrides), ROOT)):
        in_process.config(*overrides)
    for fragment in fragments:
        assert fragment in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "fragments"), **named([*SOME, *BAD_COMMANDS, *(tail(*each) for each in BAD if each not in SOME)])
)
def test_bad_input_is_refused(run_here, tmp_path, overrides, fragments):
    done = run_here(*overrides)
    if overrides[0] == "-m":  # Hydra's own log of a sweep precedes it
        done = type(done)(done.code, "", done.err)
    assert_refused(done, *fragments)
    left = [path for path in files(tmp_path) if "sweeps" not in path]
    assert left == []


@pytest.mark.parametrize(
    ("folders", "fragments"),
    [
        (
            ["train/cat/1.jpg", "train/dog/1.jpg", "val/cat/notes.txt", "val/dog/1.jpg"],
            ["val/cat holds no image", "Allowed: .jpg"],
        ),
        tail(["train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg"], ["same class folders", "differ in dog"]),
    ],
)
def test_an_image_folder_with_something_amiss_is_refused(run_here, tmp_path, folders, fragments):
    for file in folders:
        (tmp_path / "photos" / file).parent.mkdir(parents=True)
        (tmp_path / "photos" / file).touch()
    before = files(tmp_path)
    assert_refused(run_here("data=imagefolder", "data.root=photos"), "data.root=", *fragments)
    assert files(tmp_path) == before


def test_a_launcher_that_is_not_there_is_refused(run_here):
    assert_refused(
        run_here("launcher._target_=manyheads.launchers.inline.Nothing"),
        "manyheads.launchers.inline.Nothing",
        "has no Nothing",
    )


class TestOverASavedConfig:
    """``--config-path <run>/.hydra --config-name config``: Hydra's own way to repeat a run."""

    @pytest.fixture
    def saved(self, finished_run):
        return ("--config-path", str(finished_run.path / ".hydra"), "--config-name", "config")

    @pytest.fixture
    def repeat(self, run_here, saved):
        return lambda *overrides: run_here(*saved, *overrides)

    def test_repeats_the_run(self, run_command, saved, finished_run, tmp_path):
        done = run_command(*saved)
        assert done.code == 0, done.err
        (result,) = tmp_path.glob("outputs/*/*/result.json")  # its own folder, though the section was lost
        repeated = yaml.safe_load(result.read_text())
        assert repeated["weights_sha256"] == finished_run.read_result()["weights_sha256"]

    def test_an_unknown_option_is_refused(self, repeat):
        assert_refused(repeat("parallel=dpp"), "parallel=dpp", "Did you mean dp or ddp", PARALLEL)

    @pytest.mark.tail
    def test_an_option_is_looked_up_and_brings_its_launcher(self, repeat):
        assert_refused(repeat("parallel=ddp", "data.batch_size=33"), "data.batch_size=33", "2 ranks")

    def test_and_the_launcher_takes_keys(self, repeat):
        assert_refused(repeat("parallel=ddp", "launcher.nproc_per_node=3"), "data.batch_size=32", "3 ranks")

    def test_an_option_without_files_in_the_saved_folder_is_found(self, repeat):
        assert_refused(repeat("precision=tf32"), "precision=tf32", "Use precision=fp32")

    @pytest.mark.tail
    def test_null_is_no_option(self, repeat):
        assert_refused(repeat("parallel=null"), "Config group override", "set each group to one of its options")

    def test_an_experiment_cannot_be_laid_over_it(self, repeat):
        assert_refused(repeat("experiment=debug"), "experiment", "--config-path")

    @pytest.mark.parametrize("content", ["a: [1", "a: !!python/object/apply:os.system ['touch mark']"])
    def test_one_that_cannot_be_read_is_refused(self, run_here, tmp_path, content):
        (tmp_path / "run.yaml").write_text(content)
        done = run_here("--config-path", str(tmp_path), "--config-name", "run")
        assert_refused(done, "run.yaml cannot be read", "line 1")
        assert not (tmp_path / "mark").exists()

    @pytest.mark.tail
    def test_an_unknown_key_is_refused(self, repeat):
        assert_refused(repeat("trainer.epoch=1"), "Did you mean trainer.epochs?")


class TestFoldersThatAreTaken:
    def test_an_explicit_folder_with_a_run_is_refused_untouched(self, run_here, finished_run):
        before = files(finished_run.path)
        done = run_here(f"hydra.run.dir={finished_run.path}", *FAST)
        assert_refused(done, f"hydra.run.dir={finished_run.path}", "Name another folder")
        assert files(finished_run.path) == before

    @pytest.mark.parametrize("evidence", ["ledger.jsonl", "0/run.yaml"])
    def test_an_explicit_folder_with_a_sweep_is_refused_untouched(self, run_here, tmp_path, evidence):
        path = tmp_path / "sweep" / evidence
        path.parent.mkdir(parents=True)
        path.write_text("seed: 1\n")
        before = files(tmp_path)
        done = run_here("-m", "hydra.sweep.dir=sweep", "trainer.epochs=1,2", *FAST)
        assert_refused(done, "hydra.sweep.dir=sweep", "Name another folder")
        assert files(tmp_path) == before

    def test_the_folder_of_a_refused_run_is_free_again(self, run_here, tmp_path):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("keep")
        for _ in range(2):
            assert_refused(run_here("hydra.run.dir=mine", "trainer.epochs=0"), "trainer.epochs=0")
        assert list(files(tmp_path)) == ["mine/notes.txt"]


def composed(path: Path, *overrides: str, kind: str = "run"):
    """The part of Hydra's own config that the callback looks at, as protected as Hydra has it."""
    hydra = {kind: {"dir": str(path)}, "output_subdir": ".hydra", "overrides": {"hydra": list(overrides)}}
    config = OmegaConf.create({"hydra": hydra})
    OmegaConf.set_readonly(config.hydra, True)
    return config


class TestFreshFolder:
    @pytest.mark.parametrize("kind", ["run", "sweep"])
    def test_three_in_the_same_second(self, tmp_path, kind):
        start = FreshFolder().on_run_start if kind == "run" else FreshFolder().on_multirun_start
        configs = [composed(tmp_path / "12-00-00", kind=kind) for _ in range(3)]
        for config in configs:
            start(config)
        assert [Path(config.hydra[kind].dir).name for config in configs] == ["12-00-00", "12-00-00_2", "12-00-00_3"]
        assert all(Path(config.hydra[kind].dir).is_dir() for config in configs)

    def test_many_at_the_same_time(self, tmp_path):
        configs = [composed(tmp_path / "12-00-00") for _ in range(16)]
        barrier = threading.Barrier(len(configs))

        def start(config) -> None:
            barrier.wait()
            FreshFolder().on_run_start(config)

        threads = [threading.Thread(target=start, args=(config,)) for config in configs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({config.hydra.run.dir for config in configs}) == len(configs)

    def test_a_named_folder_is_taken_as_it_is(self, tmp_path):
        path = tmp_path / "mine"
        path.mkdir()
        config = composed(path, f"hydra.run.dir={path}")
        FreshFolder().on_run_start(config)
        assert config.hydra.run.dir == str(path)

    def test_a_named_folder_with_a_run_ends_the_process(self, tmp_path, capsys):
        (tmp_path / ".hydra").mkdir()
        named = composed(tmp_path, f"hydra.run.dir={tmp_path}")
        assert respond("", lambda: FreshFolder().on_run_start(named)) == 2
        assert f"error: hydra.run.dir={tmp_path} already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--cfg", "job", "parallel=ddp"], tail(["parallel=ddp", "--cfg", "job"])])
def test_flags_and_overrides_in_either_order(run_command, tmp_path, arguments):
    done = run_command(*arguments)
    assert done.code == 0, done.err
    shown = yaml.safe_load(done.out)
    assert (shown["parallel"]["name"], shown["launcher"]["name"]) == ("ddp", "spawn")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def help_text():
    done = execute(sys.executable, str(RUN), "--help", cwd=ROOT)
    assert (done.code, done.err) == (0, "")
    return done.out


@pytest.mark.parametrize("group", sorted(path.name for path in CONF.iterdir() if path.is_dir()))
def test_help_shows_every_group_with_all_its_options(help_text, group):
    assert f"\n{group}: {', '.join(options(group))}\n" in help_text


def examples(text: str) -> list[str]:
    section = text.partition("== Examples ==")[2].partition("==")[0]
    return [re.split(r"\s{2,}", line)[0] for line in section.splitlines() if line.startswith("python run.py")]


def test_help_shows_five_examples_that_compose(help_text, run_command):
    assert len(examples(help_text)) >= 5
    for example in examples(help_text):
        arguments = example.replace("<run>", "run").split()[2:]
        if "-m" not in arguments:  # Hydra shows no config of a sweep
            done = run_command("--cfg", "job", *arguments)
            assert done.code == 0, f"{example}: {done.err}"


def raiser(error):
    def app():
        if error is not None:
            raise error

    return app


class TestExitCode:
    @pytest.mark.parametrize(
        ("error", "code", "text"),
        [
            (None, 0, ""),
            (ConfigurationError("seed=x is wrong"), 2, "error: seed=x is wrong\n"),
            (PermissionError(errno.EACCES, "Permission denied", "a/b"), 1, "error: a/b: Permission denied\n"),
            (RunFailed(FAILURE), 1, "Traceback ...\nerror: rank 1 failed first (exit code 3): OSError: disk full\n"),
            (Interrupted(signal.SIGINT), 130, "\ninterrupted by SIGINT\n"),
            (Interrupted(signal.SIGTERM), 143, "\ninterrupted by SIGTERM\n"),
            (KeyboardInterrupt(), 130, "\ninterrupted by SIGINT\n"),
            (HydraException("two\n  lines"), 2, "error: two lines\n"),
            (OmegaConfBaseException("no such node"), 2, "error: no such node\n"),
            (Ended(2, ConfigurationError("seed=x is wrong")), 2, "error: seed=x is wrong\n"),
            (Ended(1), 1, ""),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_of_each_end(self, capsys, error, code, text):
        assert respond("", raiser(error)) == code
        assert capsys.readouterr().err == text

    def test_a_mistake_of_ours_shows_its_traceback(self, capsys):
        assert respond("", raiser(ZeroDivisionError("oops"))) == 1
        assert "Traceback" in (text := capsys.readouterr().err)
        assert text.endswith("ZeroDivisionError: oops\n")

    @pytest.mark.parametrize("error", [ConfigurationError("a"), RunFailed(FAILURE)], ids=["refused", "failed"])
    def test_what_has_been_printed_is_not_printed_again(self, capsys, error):
        """Hydra raises the first failure of a sweep again at its end, maybe out of another process."""
        report(error)
        assert capsys.readouterr().err
        assert respond("", raiser(pickle.loads(pickle.dumps(error)))) == error.exit_code
        assert capsys.readouterr().err == ""


def test_an_interruption_ends_a_sweep():
    """Hydra keeps what is an Exception for the sweep's end, and goes on."""
    assert not issubclass(Interrupted, Exception)


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_refused_job(run_command, tmp_path):
    """One whose keys do not work together."""
    done = run_command("-m", "trainer.clip_norm=1", "trainer.clip_value=1,inf", "hydra.sweep.dir=sweep", *FAST)
    assert done.code == 1
    assert "error: trainer.clip_norm=1 and trainer.clip_value=1 are two ways to clip" in done.err
    assert "Traceback" not in done.out + done.err
    assert not (tmp_path / "sweep" / "0" / "run.yaml").exists()
    assert yaml.safe_load((tmp_path / "sweep" / "1" / "result.json").read_text())["status"] == "completed"


@pytest.mark.parametrize("key", ["optimizer.lr=0.001,0.01x", "trainer.log_every=1,0,2"])
def test_a_wrong_value_refuses_a_sweep_before_its_first_job(run_here, tmp_path, key):
    done = run_here("-m", key, "seed=1,2", "hydra.sweep.dir=sweep", *(o for o in FAST if "log" not in o))
    assert done.code == 2
    assert done.err.count("is not allowed.") == 1
    assert done.err.rstrip().endswith("No job was started.")
    assert not list(tmp_path.glob("sweep/*"))


@pytest.mark.parametrize("launcher", ["manyheads", "basic", tail("joblib")])
def test_every_refused_job_of_a_sweep_says_why_once(run_command, launcher):
    done = run_command("-m", "trainer.epochs=0,many", f"hydra/launcher={launcher}")
    assert done.code == 2
    assert [done.err.count(f"error: trainer.epochs={value}") for value in ("0", '"many"')] == [1, 1]
    assert "Traceback" not in done.out + done.err


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        *((f"~{group}", f"~{group}: a group cannot be left out. ") for group in (*GROUPS, *NAMED)),
        *((f"{group}=null", f"{group}=[]") for group in NAMED),
    ],
)
def test_what_cannot_be_left_out_says_how_it_is_emptied(override, remedy):
    with pytest.raises(ConfigurationError, match=re.escape(remedy)), explained(CommandLine((override,))):
        in_process.typed(override)


def test_a_group_cannot_be_left_out_of_a_dry_run_either(run_here, tmp_path):
    done = run_here("-m", "~model", "seed=1,2", "hydra.launcher.dry_run=true")
    assert (done.code, "~model: a group cannot be left out." in done.err) == (2, True)


def test_what_an_experiment_leaves_to_be_set_has_no_default(tmp_path):
    (tmp_path / "experiment").mkdir()
    head = "# @package _global_\noptimizer:\n  lr: "
    (tmp_path / "experiment" / "mine.yaml").write_text(f"{head}???\ntrainer:\n  epochs: 1\n")
    (tmp_path / "experiment" / "other.yaml").write_text(f"{head}0.1\n")
    with pytest.raises(ConfigurationError, match=r"optimizer\.lr is \?\?\? in experiment=mine.*optimizer\.lr=<value>"):
        check_experiment(OmegaConf.create(["experiment=mine", "trainer.epochs=2"]), (CONF, tmp_path))
    for words in (["experiment=mine", "optimizer.lr=1"], ["+experiment=[mine,other]"]):
        check_experiment(OmegaConf.create(words), (CONF, tmp_path))
