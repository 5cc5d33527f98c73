"""What options of shards have in common."""

import pytest

from manyheads.runner.data.sharded import ShardedOption
from manyheads.runner.data.shards.index import TAR


class Tar(ShardedOption):
    shards = TAR


AUTO = {"root": "x", "train_shards": "auto", "val_shards": "auto", "test_shards": "auto"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train-0.tar", "val-0.tar"], ""),
        (
            ["extra-0.tar", "extra-1.tar", "train-0.tar", "val-0.tar"],
            "warning: skipped 2 shards (extra-0.tar, extra-1.tar), which",
        ),
        (["extra.tar", "train-0.tar", "val-0.tar"], "warning: skipped 1 shard (extra.tar), which"),
    ],
)
def test_shards_that_no_split_reads_are_counted_and_named(capsys, names, said):
    Tar(AUTO).check_shards(names)
    assert capsys.readouterr().err[: len(said) or None] == said


def test_files_that_are_no_shards_are_counted_and_named(tmp_path, capsys):
    for name in ("train-0.tar", "val-0.tar", "README.md", ".DS_Store", ".nv-meta/index.sqlite"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    Tar(AUTO | {"root": str(tmp_path)}).check_shards(["train-0.tar", "val-0.tar"])
    assert capsys.readouterr().err == ""
    for name in ("more/train-1.tar.gz", "train-2.tgz", "train.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    Tar(AUTO | {"root": str(tmp_path)}).check_shards(["train-0.tar", "val-0.tar"])
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("warning: skipped 3 files (more/train-1.tar.gz, train-2.tgz, train.parquet) below ")
    assert said.endswith(". Shards end in .tar.")
