"""What ``checkpoint/rank/folder_format.py`` offers of sharded checkpoints."""

from manyheads.runner.checkpoint.sharded.rank.read_sharded import opened
from manyheads.runner.checkpoint.sharded.rank.shard_files import copy_folder
from manyheads.runner.checkpoint.sharded.rank.write_sharded import Save, whole_size, written_beside, written_by_all

__all__ = ["Save", "copy_folder", "opened", "whole_size", "written_beside", "written_by_all"]
