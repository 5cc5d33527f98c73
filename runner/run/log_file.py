"""What a process that works without Hydra logs, into a file as Hydra would write it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyheads.runner.run.data_files import no_link

LINE = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """All messages from INFO on go to this file meanwhile, and nowhere else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", opener=no_link) as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter(LINE))
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers = handlers
            handler.close()
