"""Which targets a config from others may name, and whom the user trusts. Real commands: test_trust_commands.py."""

import sys

import pytest
from omegaconf import OmegaConf

from manyheads.runner.config.lookup import NAMED, options, read_option
from manyheads.runner.config.typed_packages import split_typed
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.run import yaml_text
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.trust import trust_store
from manyheads.runner.trust.admit import admit_run, typed_values
from manyheads.runner.trust.allowed_classes import is_harmless
from manyheads.runner.trust.check_trust import plain, refuse_untrusted, untrusted
from manyheads.runner.trust.trust_store import Trust, trusted_packages
from tests.conftest import ROOT, execute
from tests.in_process import small

NOBODY = Trust()
STEERING = [
    *("launcher.arguments", "launcher.hosts", "launcher.hostfile", "launcher.network_interface", "parallel.timeline")
]


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """~/.config/manyheads.yaml of this test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "manyheads.yaml"


@pytest.mark.parametrize("key", ["checkpoint.load", "checkpoint.resume"])
def test_a_checkpoint_that_was_typed_stays_one_s_own_when_its_path_is_completed(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    trust = Trust(typed=(*typed_values([f"{key}=outputs/a/best.pt"]),))
    name = key.partition(".")[2]
    for path in ("outputs/a/best.pt", str(tmp_path / "outputs/a/best.pt")):
        assert not untrusted({"checkpoint": {name: path}}, trust)
    assert untrusted({"checkpoint": {name: str(tmp_path / "outputs/b/best.pt")}}, trust)


@pytest.mark.parametrize("group", GROUPS)
def test_all_options_are_harmless(group):
    for name in options(group):
        target = read_option(group, name)["_target_"]
        assert target == "???" or is_harmless(group, target)


@pytest.mark.parametrize(
    ("group", "target"),
    [
        ("loss", "torch.nn.CrossEntropyLoss"),
        ("loss", "torch.nn.MSELoss"),
        ("model", "torch.nn.Linear"),
        ("model", "manyheads.runner.model.rank.small_cnn.SmallCNN"),
        ("optimizer", "torch.optim.RMSprop"),
        ("scheduler", "torch.optim.lr_scheduler.StepLR"),
        ("data", "torchvision.datasets.FakeData"),
        ("data", "manyheads.runner.data.synthetic.Synthetic"),
        (None, "torchvision.transforms.v2.RandomHorizontalFlip"),
        (None, "torchvision.transforms.ToTensor"),
        (None, "torch.nn.ReLU"),
    ],
)
def test_classes_that_anybody_may_name(group, target):
    assert is_harmless(group, target)


DANGEROUS = [
    "torchvision.datasets.Cityscapes",
    "torchvision.datasets.FGVCAircraft",
    "torchvision.datasets.ImageNet",
    "torchvision.datasets.CIFAR10",
    "torchvision.datasets.ImageFolder",
    "torchvision.models.ResNet",
    "torch.nn.Module",
    "torch.nn.LazyLinear",
    "torch.hub.load",
    "torch.utils.cpp_extension.load",
    "torch.utils.cpp_extension.subprocess.Popen",
    "torch.load",
    "torch.package.PackageImporter",
    "torch.nn.modules.module.torch.hub.load",
    "torch.nn.init.uniform_",
    "torch.nn.functional.relu",
    "torch.nn.utils.parametrize.copy",
    "torch.nn.attention._fa3.register_flash_attention_fa3",
    "torch.nn.attention.os.system",
    "torch.nn.modules.adaptive.namedtuple",
    "torch.optim.optimizer.defaultdict",
    "torch.optim.__name__",
    "torch.nn",
    "torch.utils.data.datapipes.iter.FileOpener",
    "torch.utils.data.IterDataPipe",
    "torch.utils.model_dump.__main__.x",
    "torchvision.models.resnet18",
    "torchvision.models.get_model",
    "torchvision.datasets.LSUN",
    "torchvision.datasets.lsun.LSUNClass",
    "torchvision.datasets.utils.extract_archive",
    "manyheads.runner.run.run_folder.RunFolder",
    "manyheads.runner.config.hydra_errors.command_line",
    "manyheads.runner.run.seal.sealed",
    "manyheads.runner.data.imagefolder.Path",
    "manyheads.launchers.agent_program.subprocess.Popen",
    "manyheads.launchers.mpirun.run_agent",
    "os.system",
    "builtins.exec",
    "subprocess.Popen",
    "torchvision_evil.models.Net",
    "torch_evil.nn.Net",
    "x",
    "",
    ".",
    "torch.nn.",
]


@pytest.mark.parametrize("group", [*GROUPS, "loss", None])
@pytest.mark.parametrize("target", DANGEROUS)
def test_whatever_else_is_not(group, target):
    assert not is_harmless(group, target)


@pytest.mark.parametrize("group", ["parallel", "precision", "launcher"])
def test_strategies_precisions_and_launchers_are_the_projects_options_only(group):
    for target in (
        "manyheads.launchers.launcher.Launcher",
        "manyheads.runner.parallel.rank.parallel.Parallel",
        "torch.nn.Linear",
    ):
        assert not is_harmless(group, target)


def test_a_class_of_one_group_is_none_of_another():
    assert not is_harmless("optimizer", "torch.nn.Linear")
    assert not is_harmless("model", "torch.optim.SGD")
    assert not is_harmless("anything", "torch.nn.Linear")


def test_own_options_are_known_without_torch():
    code = (
        "import sys; from manyheads.runner.config.lookup import GROUPS, options, read_option\n"
        "from manyheads.runner.trust.allowed_classes import is_harmless\n"
        "for g in GROUPS:\n  for o in options(g):\n    t = read_option(g, o)['_target_']\n"
        "    assert t == '???' or is_harmless(g, t)\n"
        "assert is_harmless('loss', 'torch.nn.CrossEntropyLoss')\n"
        "assert not is_harmless('model', 'os.system') and not is_harmless('model', 'torch.hub.load')\n"
        "assert 'torch' not in sys.modules"
    )
    done = execute(sys.executable, "-c", code, cwd=ROOT)
    assert done.code == 0, done.err


class TestWhomTheUserTrusts:
    def test_a_package_and_all_that_is_in_it(self):
        trust = Trust(("my_package", "a.b"))
        assert all(map(trust.covers, ["my_package", "my_package.Net", "my_package.x.Net", "a.b.C"]))
        assert not any(map(trust.covers, ["my_package_evil.Net", "a.Net", "a.bc", "x.my_package.Net", ""]))

    @pytest.mark.parametrize("typed", ["trust=[a,b.c]", "trust=a,b.c", "+trust=[a, b.c]", "++trust=['a',\"b.c\"]"])
    def test_typed(self, typed):
        assert split_typed(["seed=1", typed, "x=trust"]) == (["a", "b.c"], ["seed=1", "x=trust"])

    @pytest.mark.parametrize("typed", ["trust=[a;b]", "trust=*", "trust=a b", "trust=a..b", "trust=[[a]]", "trust=1"])
    def test_what_names_no_package_is_refused(self, typed):
        with pytest.raises(ConfigurationError, match="is not the name of a package. Allowed: names of packages"):
            split_typed([typed])

    def test_by_both_ways(self, settings):
        assert trusted_packages() == ()
        settings.write_text("trust: [a, b.c]\n")
        assert trusted_packages(["f"]) == ("a", "b.c", "f")
        settings.write_text("trust: a\n")
        assert trust_store.of_file() == ["a"]

    @pytest.mark.parametrize(
        "content", ["[a]", "trust: [1]", "trust: {a: b}", "trusted: [a]", "a: [", "trust: ['a b']"]
    )
    def test_settings_that_say_something_else_are_refused(self, settings, content):
        settings.write_text(content)
        with pytest.raises(ConfigurationError, match=r"manyheads\.yaml"):
            trusted_packages()


class TestARunConfig:
    def test_of_the_projects_own_options_passes(self):
        refuse_untrusted(small(), NOBODY)

    @pytest.mark.parametrize("group", NAMED)
    def test_named_classes_are_the_projects_own_or_trusted(self, group):
        config = small()
        config[group]["mine"] = {"_target_": "my_package.Thing"}
        assert untrusted(config, NOBODY) == [(f"{group}.mine._target_", "my_package.Thing")]
        assert untrusted(config, Trust(("my_package",))) == []

    def test_of_the_users_own_passes(self):
        refuse_untrusted({**small(), "loss": {"_target_": "my_package.Thing"}}, None)

    @pytest.mark.parametrize("group", [*GROUPS, "loss"])
    def test_every_target_is_looked_at(self, group):
        config = small()
        config[group]["_target_"] = "my_package.Thing"
        assert untrusted(config, NOBODY) == [(f"{group}._target_", "my_package.Thing")]
        assert untrusted(config, Trust(("my_package",))) == []
        assert untrusted(config, Trust(typed=((f"{group}._target_", "my_package.Thing"),))) == []
        assert untrusted(config, Trust(typed=(("other._target_", "my_package.Thing"),))) != []

    def test_deeper_ones_too(self):
        config = small()
        config["model"]["inner"] = [{"block": {"_target_": "a.B", "norm": {"_target_": "torch.nn.ReLU"}}}]
        config["_target_"] = "c.D"
        config["x"] = {"_target_": ["e.F"]}
        found = [("model.inner.0.block._target_", "a.B"), ("_target_", "c.D"), ("x._target_", ["e.F"])]
        assert untrusted(config, NOBODY) == found

    @pytest.mark.parametrize("key", STEERING)
    def test_what_steers_programs_must_be_the_users(self, key):
        group, name = key.split(".")
        config = small()
        config[group] |= {name: "--evil"}
        assert untrusted(config, NOBODY) == [(key, "--evil")]
        assert untrusted(config, Trust(typed=((key, "--evil"),))) == []
        assert untrusted(config, Trust((key,))) == []
        assert untrusted(config, Trust((group,))) != []

    @pytest.mark.parametrize("group", GROUPS)
    def test_what_an_option_declares_itself_by_is_looked_at_like_its_class(self, group):
        config = small()
        config[group]["_option_"] = "my_package.Thing"  # which does not exist, and is not looked for
        assert untrusted(config, NOBODY) == [(f"{group}._option_", "my_package.Thing")]
        own = {option["_option_"] for name in options(group) if "_option_" in (option := read_option(group, name))}
        for name in own:
            config[group]["_option_"] = name
            assert untrusted(config, NOBODY) == []
        config[group]["_option_"] = "manyheads.runner.option.option.Option"
        assert untrusted(config, NOBODY) != []

    def test_a_plain_declaration_does_not_hide_what_steers_programs(self):
        config = small("launcher=torchrun", "parallel=ddp")
        config["launcher"] |= {"_option_": "manyheads.launchers.inline.InlineOption", "network_interface": "--evil"}
        assert untrusted(config, NOBODY) == [("launcher.network_interface", "--evil")]

    def test_the_error_lists_all_and_says_how_to_trust_them(self):
        config = small()
        config["model"]["_target_"] = "my_package.nets.Net"
        config["loss"]["_target_"] = "torch.hub.load"
        config["data"]["_target_"] = "x\ny"
        with pytest.raises(ConfigurationError) as caught:
            refuse_untrusted(config, NOBODY)
        text = str(caught.value)
        for part in (
            "model._target_=my_package.nets.Net",
            "loss._target_=torch.hub.load",
            r'data._target_="x\ny"',
            "Look at that code first",
            "trust=[torch.hub.load,my_package",
            "manyheads.yaml",
        ):
            assert part in text, text
        assert "\n" not in text

    def test_it_can_not_say_itself_what_is_trusted(self):
        with pytest.raises(ConfigurationError, match="only the user can say what is trusted, not a config"):
            refuse_untrusted({**small(), "trust": ["my_package"]}, Trust(("my_package",)))


def test_what_is_typed_is_the_users_own():
    typed = ["model._target_=a.B", "++loss._target_=c.D,e.F", "+x={_target_:g.H,y:{z:1}}", "optimizer._target_='i.J'"]
    found = list(typed_values([*typed, "broken=[", "data._target_=choice(k.L,m.N)"]))
    for pair in [
        ("model._target_", "a.B"),
        ("loss._target_", "c.D"),
        ("loss._target_", "e.F"),
        ("x._target_", "g.H"),
        ("x.y.z", 1),
        ("optimizer._target_", "i.J"),
        ("data._target_", "m.N"),
    ]:
        assert pair in found
    assert not any(key == "broken" for key, _ in found)


def test_a_config_may_not_hide_a_target_behind_another_key():
    """Interpolations are resolved before the look."""
    composed = OmegaConf.create({"a": {"_target_": "x.Y"}, "model": "${a}", "loss": {"_target_": "${a._target_}"}})
    found = untrusted(plain(composed), NOBODY)
    assert ("model._target_", "x.Y") in found
    assert ("loss._target_", "x.Y") in found


def test_a_run_config_is_refused_by_its_size_before_it_is_parsed(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.config.write_bytes(b"a: 1\n" * 2_000_000)
    monkeypatch.setattr(yaml_text, "parse", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(ConfigurationError, match="it has more than 50000 bytes"):
        admit_run(folder)
