"""data=custom: a class of the user's own."""

import pytest
import torch

from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.errors import ConfigurationError
from tests.in_process import typed

PACKAGE = """
class Photos:
    classes = ["cat", "dog", "bird"]
    def __init__(self, split, root=None, shade=0):
        self.split, self.root, self.shade = split, root, shade
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index

class Whole:
    pass

class Declared(Photos):
    num_inputs = 5

class Anonymous:
    def __init__(self, split):
        pass
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index
"""


@pytest.fixture
def target(tmp_path, monkeypatch) -> str:
    name = f"sets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def build(target: str, *overrides: str):
    return build_data(typed("data=custom", f"data._target_={target}", *overrides).data)


def test_the_class_gets_split_root_and_further_keys(target, tmp_path):
    data = build(f"{target}.Photos", f"data.root={tmp_path}", "+data.shade=3")
    train, val = data.split(train=True), data.split(train=False)
    assert (train.split, val.split) == ("train", "val")
    assert (train.root, train.shade) == (str(tmp_path), 3)


def test_num_classes_is_the_key_the_attribute_or_the_number_of_classes(target):
    assert build(f"{target}.Photos").num_classes == 3
    assert build(f"{target}.Photos", "data.num_classes=7").num_classes == 7
    assert build("tests.zoo.Noise").num_classes == 3
    assert build(f"{target}.Anonymous").num_classes is None  # as of samples that have none


def test_the_first_sample_says_how_many_numbers_a_model_gets_unless_the_class_does(target):
    before = torch.get_rng_state()
    assert build("tests.data.own_sets.Rows").num_inputs == 8
    assert build("tests.zoo.Noise").num_inputs == 3 * 8 * 8
    assert build(f"{target}.Photos").num_inputs is None  # its samples are no pairs
    assert build(f"{target}.Declared").num_inputs == 5
    assert torch.equal(torch.get_rng_state(), before)


def test_root_is_passed_only_to_a_class_that_takes_it(target, tmp_path):
    build(f"{target}.Anonymous", f"data.root={tmp_path}", "data.num_classes=2")


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("Nothing", [], r"has no Nothing"),
        ("Whole", [], r"Whole does not take split\. It is created with split='train' and with split='val': add that"),
        ("Photos", ["+data.colour=1"], r"Photos rejects its arguments: .*'colour'"),
    ],
)
def test_what_does_not_fit_is_said(target, name, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        build(f"{target}.{name}", *overrides)
    with pytest.raises(ConfigurationError, match=r"can't be imported"):
        build("no_such_package.Photos")
