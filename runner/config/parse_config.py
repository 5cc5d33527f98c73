"""Parses the content of a config that anyone may have written."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from manyheads.runner.errors import ConfigurationError, printable
from manyheads.runner.run import yaml_text

BYTES = 50_000  # limit of a file; a run config has 4,000


def parse_config(content: bytes, path: Path) -> Any:
    """Parse a config's content as Hydra would. Raises ConfigurationError if it is too large or not YAML."""
    try:
        if len(content) > BYTES:
            raise ValueError(f"it has more than {BYTES} bytes")
        text = content.decode()
        yaml_text.parse(text)  # within its limits
        return OmegaConf.to_container(OmegaConf.create(text))  # what Hydra reads: parsers differ
    except Exception as error:  # YAML's constructors raise anything, RecursionError included
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(f"a config cannot be read: {printable(path)}: {reason}.") from None
