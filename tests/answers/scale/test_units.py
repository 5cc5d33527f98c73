"""A model's units, seen by a rank of the test's own process."""

from contextlib import closing

import pytest

from manyheads.runner.answers.measure.rank import floors
from manyheads.runner.answers.measure.rank.parts import UpdateParts
from manyheads.runner.answers.scale.rank.units import units_of
from manyheads.runner.option.run_config import RunConfig
from tests.in_process import attempt, small, weights

TEXT = ("task=language_model", "data=custom", "data._target_=tests.parallel.models.Text", "data.batch_size=4")
GPT = ("model=gpt", "model.depth=3", "model.width=16", "model.heads=2", *TEXT)


def units(tmp_path, *overrides):
    config = small("trainer.evaluate_every=0", "checkpoint.every=0", *overrides)
    session = attempt(tmp_path, config)
    with closing(session.trainer):
        parts = UpdateParts(floors.endless(session.trainer), RunConfig.of(config))
        before = weights(session.trainer)
        found = units_of(parts.update, parts.kept)
        assert all(bool((value == before[name]).all()) for name, value in weights(session.trainer).items())
        assert all(parameter.grad is None for parameter in parts.update.parameters)
        trained = sum(p.numel() for p in parts.update.parameters)
    assert sum(size for size, _, _ in found) == 4 * trained
    assert sum(share for _, share, _ in found) == pytest.approx(1)
    return found


def test_a_model_of_layers_has_a_unit_for_each(tmp_path):
    found = units(tmp_path)
    assert len(found) > 2
    assert all(share > 0 and handed_on > 0 for _, share, handed_on in found)


def test_a_transformer_has_a_unit_for_each_block_in_the_order_of_the_forward_pass(tmp_path):
    found = units(tmp_path, *GPT)
    sizes = [size for size, _, _ in found]
    blocks = [size for size in sizes if sizes.count(size) == 3]
    assert len(blocks) == 3
    first = sizes.index(blocks[0])
    assert sizes[first : first + 3] == blocks
    assert 0 < first < len(sizes) - 3  # the embedding is before them, the last norm behind
