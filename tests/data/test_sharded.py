"""What options of shards have in common."""

import pytest

from manyheads.runner.data.sharded import ShardedOption

AUTO = {"root": "x", "train_shards": "auto", "val_shards": "auto", "test_shards": "auto"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train-0.tar", "val-0.tar"], ""),
        (
            ["extra-0.tar", "extra-1.tar", "train-0.tar", "val-0.tar"],
            "warning: 2 shards (extra-0.tar, extra-1.tar) match",
        ),
    ],
)
def test_shards_that_no_split_reads_are_counted_and_named(capsys, names, said):
    ShardedOption(AUTO).check_shards(names)
    assert capsys.readouterr().err[: len(said) or None] == said
