"""Shards, the files that hold many samples each: their index with checksums, and reading them in object storage."""
