"""A config that somebody sent: by --config-path, by --config-dir, on the search path."""

import shutil
import time

import pytest
import yaml

from manyheads.runner.config.lookup import CONF
from tests.conftest import COMMANDS, FAST
from tests.tail import each_once
from tests.trust.foreign import assert_refused, given

pytestmark = pytest.mark.ci

SEEN = "WANDB_API_KEY_OF_THIS_TEST"

# What a run config may not say, and what the error shows of it.
WHOLE = {
    "an environment variable": ({"seed": f"${{oc.env:{SEEN}}}"}, "cannot ask for environment variables"),
    "one in a list": ({"loss": {"_target_": "torch.nn.CrossEntropyLoss", "x": [f"${{oc.env:{SEEN}}}"]}}, "cannot ask"),
    "one with a default": ({"seed": f"${{oc.env:{SEEN},7}}"}, "cannot ask"),
    "one whose name is put together": ({"seed": "${oc.${trainer.device}:HOME}"}, "cannot ask"),
    "text that is parsed again": ({"seed": "${oc.decode:'[1]'}"}, "cannot ask"),
    "another resolver": ({"seed": "${oc.create:{a:1}}"}, "cannot ask"),
    "a variable in a key": ({"loss": {"_target_": "torch.nn.MSELoss", f"${{oc.env:{SEEN}}}": 1}}, "cannot ask"),
    "an escape sequence": ({"seed": "\x1b]0;owned\x07"}, "control characters"),
    "one in a key": ({"\x1b[2J": 1}, "control characters"),
    "text that runs backwards": ({"seed": "\u202etxt.evil"}, "control characters"),
    "a number of 5,000 digits": ({"seed": 10**4000}, "more than 64 bits"),
    "a download": ({"data": {"_target_": "manyheads.runner.data.torchvision.TorchvisionData", "name": "mnist",
                             "download": True, "root": "x"}}, "data.download=true"),
    "weights from elsewhere": ({"model": {"name": "resnet18", "pretrained": "DEFAULT",
                                          "_target_": "manyheads.runner.model.rank.torchvision.torchvision_model"}},
                               "model.pretrained=DEFAULT"),
    "a class that unpacks zips": ({"data": {"_target_": "torchvision.datasets.Cityscapes", "name": "custom",
                                            "root": "x"}}, "data._target_=torchvision.datasets.Cityscapes"),
    "a class that unpacks a tar": ({"data": {"_target_": "torchvision.datasets.FGVCAircraft", "name": "custom",
                                             "root": "x"}}, "torchvision.datasets.FGVCAircraft"),
    "a class that loads pickles": ({"data": {"_target_": "torchvision.datasets.ImageNet", "name": "x"}}, "ImageNet"),
    "one of them deeper": ({"loss": {"_target_": "torch.nn.CrossEntropyLoss", "weight": {
        "_target_": "torchvision.datasets.Cityscapes", "root": "x"}}}, "loss.weight._target_"),
    "a file of the user's own": ({"checkpoint": {"load": "/home/me/mine.pt"}}, "checkpoint.load=/home/me/mine.pt"),
    "another one": ({"checkpoint": {"resume": "/home/me/mine.pt"}}, "checkpoint.resume=/home/me/mine.pt"),
    "a class that declares an option": ({"scheduler": {"name": "constant", "_option_": "my_package.Net",
        "_target_": "manyheads.runner.scheduler.rank.schedules.Constant"}}, "scheduler._option_=my_package.Net"),
    "one of another group": ({"scheduler": {"name": "constant", "_option_": "manyheads.launchers.launcher.Launcher",
        "_target_": "manyheads.runner.scheduler.rank.schedules.Constant"}}, "scheduler._option_="),
    "a server to publish to": ({"logger": {"x": {"_target_": "manyheads.runner.logger.mlflow.MLflow",
        "_option_": "manyheads.runner.logger.mlflow.MLflowOption", "tracking_uri": "http://evil.example"}}},
                               "logger.x.tracking_uri=http://evil.example"),
    "one without its declaration": ({"logger": {"x": {"_target_": "manyheads.runner.logger.mlflow.MLflow",
        "tracking_uri": "http://evil.example"}}}, "logger.x.tracking_uri=http://evil.example"),
    "somebody's account": ({"logger": {"x": {"_target_": "manyheads.runner.logger.wandb.WandB",
        "entity": "evil"}}}, "logger.x.entity=evil"),
    "a class that declares a tracker": ({"logger": {"x": {"_option_": "my_package.Net",
        "_target_": "manyheads.runner.logger.mlflow.MLflow"}}}, "logger.x._option_=my_package.Net"),
    "a bucket that is read as you": ({"data": {"_target_": "manyheads.runner.data.tar.Tar",
        "_option_": "manyheads.runner.data.tar.TarOption", "root": "s3://evil/data", "name": "tar"}}, "data.root=s3://evil/data"),
    "a copy of the run elsewhere": ({"checkpoint": {"mirror": "s3://evil/run"}}, "checkpoint.mirror=s3://evil/run"),
    "a folder that is written": ({"data": {"_target_": "manyheads.runner.data.tar.Tar", "root": "/data", "name": "tar",
        "cache_folder": "/home/victim"}}, "data.cache_folder=/home/victim"),
    "what is trusted": ({"trust": ["os"]}, "only the user can say what is trusted, not a config"),
}  # fmt: skip


@pytest.mark.parametrize(("attack", "way"), each_once(WHOLE, ["--config-path", "resume"]))
def test_a_run_config(run_here, resume_here, here, config, monkeypatch, attack, way):
    monkeypatch.setenv(SEEN, "12345")
    change, message = WHOLE[attack]
    given(here / "theirs", config | change)
    saved = ("--config-path", str(here / "theirs"), "--config-name", "run")
    done = resume_here("theirs") if way == "resume" else run_here(*saved)
    assert_refused(done, here, message)
    assert "12345" not in done.err
    assert "\x1b" not in done.err
    assert not (here / "theirs" / "result.json").exists()


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
TEXTS = {
    "an alias bomb": BOMB,
    "one of mappings": "a0: &a0 {x: 1}\n"
    + "".join(f"a{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}}}\n" for i in range(1, 60)),
    "an alias of itself": "a: &a [*a]",
    "nested lists": "a: " + "[" * 20000,
    "nested lists that end": "a: " + "[" * 40000 + "]" * 40000,
    "a key twice": "seed: 1\nseed: 2\n",
    "a Python object": "seed: !!python/object/apply:os.system ['touch mark']",
    "a Python name": "seed: !!python/name:os.system",
    "a number of many digits": "seed: " + "9" * 5000,
    "a hexadecimal one": "seed: 0x" + "f" * 5000,
    "bytes that are no text": b"seed: \xff\xfe\x00".decode("latin-1"),
    "a control character": "seed: \x00",
    "a date that is none": "seed: 2001-99-99",
    "a key that is a list": "? [a]\n: 1",
    "a list": "- 1",
    "ten megabytes": "x: " + "y" * 10**7,
}


@pytest.mark.parametrize(
    ("attack", "way"), each_once(TEXTS, ["--config-path", "--config-dir", "search path", "resume"])
)
def test_a_text_that_takes_for_ever_or_is_no_config(run_here, resume_here, here, attack, way):
    name = "run.yaml" if way in ("resume", "--config-path") else "model/x.yaml"
    path = here / "theirs" / name
    path.parent.mkdir(parents=True)
    path.write_text(TEXTS[attack], encoding="utf-8" if attack != "bytes that are no text" else "latin-1")
    began = time.monotonic()
    if way == "resume":
        done = resume_here("theirs")
    elif way == "search path":
        done = run_here(f"hydra.searchpath=[file://{here}/theirs]", "model=x", *FAST[:2])
    else:
        flags = ("--config-path", str(here / "theirs"), "--config-name", "run")
        done = run_here(*(flags if way == "--config-path" else ("--config-dir", str(here / "theirs"), "model=x")))
    assert_refused(done, here)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "override", ["model=../../theirs/x", "model=/theirs/x", "+model/../../x=y", "model=.hidden/x", "+../x=y"]
)
def test_a_name_that_leads_out_of_the_folder(run_here, here, override):
    given(here / "theirs", {"_target_": "os.system"}, name="x.yaml")
    assert_refused(run_here(override), here)


def test_a_link_in_the_place_of_a_config(run_here, here):
    """It could show a file of the user's in run.yaml."""
    (here / "secret.yaml").write_text("password: 1\n")
    (here / "theirs").mkdir()
    (here / "theirs" / "run.yaml").symlink_to(here / "secret.yaml")
    assert_refused(run_here("--config-path", str(here / "theirs"), "--config-name", "run"), here, "theirs")


@pytest.mark.parametrize("launcher", ["basic", "manyheads", "joblib"])
@pytest.mark.parametrize("sweeper", ["basic", "optuna"])
def test_every_launcher_and_sweeper_looks_first(run_here, here, config, launcher, sweeper):
    given(here / "theirs", config | {"seed": "${oc.env:HOME}"})
    saved = ("--config-path", str(here / "theirs"), "--config-name", "run", "-m")
    done = run_here(*saved, f"hydra/launcher={launcher}", f"hydra/sweeper={sweeper}", "trainer.epochs=1,2")
    assert_refused(done, here, "cannot ask for environment variables")


class TestAProjectOfOnesOwn:
    """`python -m runner trust`, once, and for that folder only."""

    @pytest.fixture
    def project(self, here):
        given(
            here / "mine" / "conf",
            {"defaults": ["config", "_self_"], "hydra": {"job": {"name": "mine"}}},
            name="mine.yaml",
        )
        return here / "mine"

    @staticmethod
    def over_conf(project, *overrides):
        return ("--config-path", str(project / "conf"), "--config-name", "mine", f"hydra.searchpath=[file://{CONF}]",
                "trainer.epochs=0", *overrides)  # fmt: skip

    def test_it_is_foreign_until_then_and_the_error_has_the_command(self, run_here, trust_here, here, project):
        done = run_here(*self.over_conf(project))
        assert_refused(done, here, f"{COMMANDS} trust {project / 'conf'}")
        done = trust_here(str(project))
        assert done.code == 0, done.err
        assert "hydra" in done.out
        assert "trainer.epochs=0 is not allowed" in run_here(*self.over_conf(project)).err

    def test_another_folder_in_it_stays_foreign(self, run_here, trust_here, here, project):
        assert trust_here(str(project)).code == 0
        shutil.copytree(project / "conf", project / "theirs")
        done = run_here("--config-path", str(project / "theirs"), "--config-name", "mine")
        assert_refused(done, here, "configs that are composed can run any code")

    def test_it_is_the_place_that_is_trusted(self, run_here, trust_here, here, project):
        assert trust_here(str(project)).code == 0
        project.rename(here / "moved")
        assert_refused(run_here(*self.over_conf(here / "moved")), here, "configs that are composed can run any code")

    @pytest.mark.parametrize("name", ["nothing", "file"])
    def test_what_is_no_folder(self, command_here, here, name):
        (here / "file").touch()
        assert_refused(command_here("trust", name), here, "is not a folder")


def test_a_run_is_trusted_after_showing_what_it_could_run(run_here, resume_here, trust_here, here, config):
    model = {"_target_": "my_package.Net", "name": "custom", "num_classes": None, "pretrained": None}
    folder = given(here / "theirs", config | {"model": model})
    done = resume_here("theirs")
    assert_refused(done, here, f"{COMMANDS} trust {folder}")
    done = trust_here("theirs")
    assert done.code == 0, done.err
    assert "model._target_=my_package.Net" in done.out
    saved = ("--config-path", str(folder), "--config-name", "run", "trainer.epochs=0")
    assert "trainer.epochs=0 is not allowed" in run_here(*saved).err
    text = yaml.safe_dump(config | {"model": model | {"_target_": "os.system"}})
    (folder / "run.yaml").write_text(text)
    assert_refused(run_here(*saved), here, "model._target_=os.system")
