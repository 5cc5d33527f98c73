"""How shards in object storage are read: the keys of every option that does so, and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.machine.user_folders import user_folder
from manyheads.runner.option.rules import DURATION, TEXT, number, seconds, whole
from manyheads.runner.run.storage.disk_cache import Settings


@dataclass(frozen=True)
class Reading:
    """How object storage is read.

    ``part``: bytes of adjacent samples that are fetched together; ``ahead``: batches that are fetched ahead;
    ``retry_for``: seconds for which a failing request is repeated.
    """

    rules: ClassVar = {
        "cache_folder": TEXT,
        "cache_gb": number(above=0),
        "fetch_mb": number(above=0),
        "read_ahead": whole(0),
        "retry_for": DURATION,
    }
    keys: ClassVar[tuple[str, ...]] = (*rules,)
    cache: Settings
    part: int
    ahead: int
    retry_for: float

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "Reading":
        """The settings from an option's keys. Raises ConfigurationError for a user without a home."""
        folder, own = keys["cache_folder"], user_folder("cache")
        if folder is None and own is None:
            raise ConfigurationError("data.cache_folder: you have no home folder. Set it.", key="data.cache_folder")
        place = Path(folder).expanduser() if folder else own / "manyheads" / "storage"  # type: ignore[operator]
        cache = Settings(place, int(keys["cache_gb"] * 10**9))
        return cls(cache, int(keys["fetch_mb"] * 10**6), keys["read_ahead"], seconds(keys["retry_for"]) or 0.0)
