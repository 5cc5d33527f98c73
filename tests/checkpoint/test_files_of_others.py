"""Weights from other programs: names with prefixes, heads for other classes, one name of tied weights."""

import pytest
import torch
from torch import nn

from manyheads.runner.checkpoint.rank.fit import load_file, load_model, read_weights
from manyheads.runner.errors import ConfigurationError
from tests.zoo import Tied

PREFIXES = ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model.", "module.model.")


class Auxiliary(nn.Module):
    """Its layers are called as torchvision's auxiliary heads are."""

    def __init__(self, num_classes=2):
        super().__init__()
        self.aux_body = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.auxiliary_out = nn.Linear(4, num_classes)


class Wrapped(nn.Module):
    """Its own names begin as a wrapper's do."""

    def __init__(self):
        super().__init__()
        self.model = nn.Linear(2, 2)


def saved(path, content):
    torch.save(content, path)
    return str(path)


def equal(one, other):
    return all(torch.equal(one[name], weight) for name, weight in other.items())


@pytest.mark.parametrize("key", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_are_removed_and_named(tmp_path, prefix, key):
    theirs, ours = Auxiliary(), Auxiliary()
    state = {f"{prefix}{name}": weight for name, weight in theirs.state_dict().items()}
    path = saved(tmp_path / "theirs.ckpt", state if key is None else {key: state, "epoch": 3})
    weights, removed = read_weights(ours, path)
    assert removed == prefix
    load_model(ours, weights, path)
    assert equal(ours.state_dict(), theirs.state_dict())
    assert load_file(Auxiliary(), path) == (([], [], []), prefix)


def test_names_of_the_model_s_own_are_no_prefix(tmp_path):
    theirs, ours = Wrapped(), Wrapped()
    assert load_file(ours, saved(tmp_path / "a.pt", theirs.state_dict()))[1] == ""
    assert equal(ours.state_dict(), theirs.state_dict())
    lightning = {f"model.{name}": weight for name, weight in theirs.state_dict().items()}
    assert load_file(ours, saved(tmp_path / "b.pt", {"state_dict": lightning}))[1] == "model."


def test_a_module_beside_the_model_is_named(tmp_path):
    state = {f"model.{name}": weight for name, weight in Auxiliary().state_dict().items()}
    path = saved(tmp_path / "a.ckpt", {"state_dict": {**state, "criterion.weight": torch.ones(2)}})
    weights, _ = read_weights(model := Auxiliary(), path)
    assert load_model(model, weights, path, strict=False).unexpected == ["criterion.weight"]
    with pytest.raises(ConfigurationError, match=r"not in the model: criterion\.weight"):
        load_model(model, weights, path)


def test_layers_called_aux_are_loaded_and_a_missing_head_is_named(tmp_path):
    theirs, ours = Auxiliary(), Auxiliary()
    load_file(ours, saved(tmp_path / "all.pt", theirs.state_dict()))
    assert equal(ours.state_dict(), theirs.state_dict())
    body = {name: each for name, each in theirs.state_dict().items() if not name.startswith("auxiliary_out")}
    unfit, _ = load_file(ours, saved(tmp_path / "body.pt", body))
    assert unfit.missing == ["auxiliary_out.weight", "auxiliary_out.bias"]
    unfit, _ = load_file(Auxiliary(num_classes=5), saved(tmp_path / "two.pt", theirs.state_dict()))
    assert unfit.shapes == ["auxiliary_out.weight", "auxiliary_out.bias"]
    with pytest.raises(ConfigurationError, match=r"another model: aux9\.weight don't fit"):
        load_file(ours, saved(tmp_path / "more.pt", {**theirs.state_dict(), "aux9.weight": torch.ones(1)}))


def test_one_name_of_tied_weights_is_enough_and_two_values_are_refused(tmp_path):
    theirs, ours = Tied(num_classes=5), Tied(num_classes=5)
    state = theirs.state_dict()
    del state["head.weight"]
    path = saved(tmp_path / "one.pt", state)
    assert load_file(ours, path) == (([], [], []), "")
    load_model(other := Tied(num_classes=5), read_weights(ours, path)[0], path)
    assert all(equal(each.state_dict(), theirs.state_dict()) for each in (ours, other))
    state["head.weight"] = state["embedding.weight"] + 1
    with pytest.raises(ConfigurationError, match=r"different values for embedding\.weight and head\.weight"):
        read_weights(ours, saved(tmp_path / "two.pt", state))
