"""Each key of each option says what it is; somebody else's config may set what names nothing of the user's."""

import pytest

from manyheads.runner.config.lookup import CONF, NAMED, SECTIONS, options, read, read_option
from manyheads.runner.option.declared import GROUPS
from manyheads.runner.option.rules import KeyKind
from manyheads.runner.option.tree import OPTION, TARGET
from manyheads.runner.trust.allowed_keys import own_kinds, refused_keys
from manyheads.runner.trust.trust_store import Trust
from tests.in_process import small

OF_SECTIONS = [(name, read(CONF / "config.yaml")[name]) for name in SECTIONS]
OF_OPTIONS = [(group, read_option(group, name)) for group in GROUPS for name in options(group)]
OF_ENTRIES = [(group, each) for group in NAMED for name in options(group) for each in read_option(group, name).values()]


@pytest.mark.parametrize(("group", "section"), [*OF_SECTIONS, *OF_OPTIONS, *OF_ENTRIES])
def test_each_key_is_decided(group, section):
    """Give a new key a rule of its kind: a number, a choice, TEXT, PATH, PLACE, an object, or anything."""
    kinds = own_kinds(group)
    for key, default in section.items():
        is_number = isinstance(default, (bool, int, float)) or (
            isinstance(default, list) and default and all(isinstance(each, (int, float)) for each in default)
        )
        assert key in (TARGET, OPTION) or key in kinds or is_number, f"{group}: what kind of value is {key}?"


def refused(section, trust=Trust()):  # noqa: B008
    config = small()
    for name, values in section.items():
        config[name] = config[name] | values
    return [key for key, _ in refused_keys(config, trust)]


OWN_TIMM = {"_target_": "manyheads.runner.model.rank.timm.timm_model", "name": "resnet18"}


@pytest.mark.parametrize(
    "section",
    [
        {"model": {**OWN_TIMM, "options": {"checkpoint_path": "/home/me/private.pth"}}},
        {"model": {**OWN_TIMM, "options": {"in_chans": 1}}},
        {"data": {"root": "/home/me/.ssh/id_rsa"}},
        {"data": {"root": "s3://bucket/x"}},
        {"data": {"transform": [{"_target_": "my_package.T", "path": "/home/me"}]}},
        {"data": {"undeclared": "/home/me"}},
        {"data": {"undeclared": [{"x": {"y": "/home/me"}}]}},
        {"model": {"_target_": "my_package.Net", "pattern": "/home/me"}},
        {"data": {"_target_": "my_package.Data", "pattern": "/home/me"}},  # what the key is in another class
        {"launcher": {"nodes": 2}},
    ],
)
def test_what_only_the_user_may_name(section):
    ((name, values),) = section.items()
    keys = refused(section, Trust(("my_package",)))
    assert len(keys) == 1, keys
    assert keys[0].partition(".")[0] == name
    assert refused(section, Trust(("my_package", keys[0]))) == []
    typed = tuple((f"{name}.{key}", value) for key, value in values.items())
    assert refused(section, Trust(("my_package",), typed)) == []
    assert refused(section, Trust(("my_package",), replaced=(keys[0],))) == []


@pytest.mark.parametrize(
    "section",
    [
        {"model": {"_target_": "torch.nn.Linear", "anything": "text"}},  # a reviewed class
        {
            "data": {
                "transform": [
                    {"_target_": "torchvision.transforms.v2.RandomCrop", "size": 4, "padding_mode": "reflect"}
                ]
            }
        },
        {"model": {"_target_": "my_package.Net", "width": 8, "sizes": [1, 2], "act": {"_target_": "torch.nn.ReLU"}}},
        {"data": {"pattern": "*.md", "batch_size": 7, "order": "blocks"}, "trainer": {"max_time": "1h"}},
        {"data": {"root": None}, "model": {"pretrained": False}},
        {"parameters": {"groups": [{"match": "head", "lr": 0.1, "method": "adamw"}]}},
    ],
)
def test_what_anybody_may_set(section):
    assert refused(section, Trust(("my_package",))) == []


def test_a_path_inside_the_folder_that_was_received(tmp_path, monkeypatch):
    inside, outside = tmp_path / "received", tmp_path / "mine"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "link").symlink_to(outside)
    trust = Trust(folder=inside)
    monkeypatch.chdir(tmp_path)
    for key in ("data.root", "checkpoint.load", "checkpoint.resume"):
        section, _, name = key.partition(".")
        assert refused({section: {name: str(inside / "x")}}, trust) == []
        for path in (str(outside), f"{inside}/../mine", f"{inside}/link/x", "mine", "received/../mine", "~/x"):
            assert refused({section: {name: path}}, trust) == [key]
    assert refused({"launcher": {"hostfile": str(inside / "hosts")}}, trust) == ["launcher.hostfile"]  # names hosts
    (inside / "data").mkdir()
    (inside / "data").chmod(0o777)  # where others could put a link after the check
    assert refused({"data": {"root": str(inside / "data")}}, trust) == ["data.root"]
    monkeypatch.setenv("HOME", str(inside / "me"))  # a folder that holds the home was not received
    assert refused({"data": {"root": str(inside / "x")}}, trust) == ["data.root"]


def test_a_typed_path_stays_ones_own_when_it_is_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trust = Trust(typed=(("data.root", "photos"),))
    assert refused({"data": {"root": str(tmp_path / "photos")}}, trust) == []
    assert refused({"data": {"root": str(tmp_path / "other")}}, trust) == ["data.root"]


def test_the_kinds_that_matter():
    assert own_kinds("model")["options"] is KeyKind.ANYTHING
    assert own_kinds("data")["root"] is own_kinds("checkpoint")["load"] is KeyKind.PATH
    assert {"hosts", "template", "nodes", "address"} <= {
        k for k, v in own_kinds("launcher").items() if v is KeyKind.PLACE
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plan", {"a.*": ["x"]}),
        ("plan", {"a.*": {"_target_": "os.system"}}),
        ("plan", "/home/me/plan.py"),
        ("plan", ["x"]),
    ],
)
def test_a_plan_has_patterns_of_layers_and_ways_to_split_them(key, value):
    from manyheads.runner.parallel.model_parallel import MeshOption  # a wing

    rule = MeshOption.all_rules()[key]
    assert not rule.accepts(value)
    assert rule.accepts("auto")
    assert rule.accepts({"blocks.*.mlp": "colwise"})
