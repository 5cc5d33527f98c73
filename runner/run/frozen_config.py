"""run.yaml: written once and sealed, and from then on read only if it is the one that was checked."""

import hashlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal, yaml_text
from manyheads.runner.run.data_files import read_bytes
from manyheads.runner.run.files import make_folder, write_whole

CHECKED = "MANYHEADS_CHECKED"
FORMAT = 3  # of run.yaml; raised when this version would misread or could not run what an earlier one froze


class FrozenConfig:
    """The run config that is frozen in the folder ``path``."""

    path: Path  # of the folder
    _checked: str | None = None  # digest of the run.yaml that may be read

    @cached_property
    def config(self) -> Path:
        return self.path / "run.yaml"

    def write_config(self, config: Mapping[str, Any], *, sealed: Mapping[str, str] | None = None) -> None:
        """Write and seal run.yaml, the only one read from then on. sealed: other parts that are the user's own too."""
        make_folder(self.path)
        content = text_of({"format": FORMAT, **config}).encode()
        seal.record(self.path, {self.config.name: content, **(sealed or {})}, anew=True)
        write_whole(self.config, content)
        self._checked = hashlib.sha256(content).hexdigest()

    def config_content(self) -> bytes:
        """The bytes of run.yaml. Raises ConfigurationError if it is missing, or not the one that was checked."""
        try:
            content = read_bytes(self.config)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigurationError(f"{self} holds no run: {self.config.name} does not exist.") from None
        digest, _, path = os.environ.get(CHECKED, "").partition(" ")
        expected = self._checked or (digest if path == str(self.path) else None)
        if expected not in (None, hashlib.sha256(content).hexdigest()):
            raise ConfigurationError(f"{self.config} was edited while the run was starting. Start it again.")
        return content

    def pin_config(self) -> dict[str, str]:
        """From now on read only the present run.yaml. Returns the variable that makes ranks do the same."""
        self._checked = hashlib.sha256(self.config_content()).hexdigest()
        return {CHECKED: f"{self._checked} {self.path}"}

    def is_own(self) -> bool:
        """Whether the user froze or trusted this run unchanged, or submitted it as a job."""
        if not self.config.exists():
            return False
        named = f"{hashlib.sha256(self.config_content()).hexdigest()} {self.path}" == os.environ.get(CHECKED)
        return named or self.owns()

    def owns(self, **parts: bytes | str) -> bool:
        """Whether the user recorded run.yaml together with all these parts, or trusts them together (``run/seal``)."""
        return seal.is_own(self.path, {self.config.name: self.config_content(), **parts})

    def read_config(self) -> dict:
        """The frozen run config. Raises ConfigurationError if it is missing or cannot be read."""
        return run_config(self.config_content(), self.config)


def text_of(config: Mapping[str, Any]) -> str:
    """A config as YAML, section by section: the jobs of a sweep share most of them, whose text is kept."""
    return "".join(yaml_text.dump({name: section}) for name, section in config.items()) or yaml_text.dump({})


def run_config(content: bytes, path: Path) -> dict:
    """A run config from the content of run.yaml, at ``path``. Raises ConfigurationError if it cannot be parsed."""
    try:
        config = yaml_text.parse(content.decode(errors="replace"))
    except Exception as error:  # YAML's constructors raise anything, RecursionError included
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path} cannot be read: it holds no run config.")
    return without_format(config)


def without_format(config: dict) -> dict:
    """The run config in the content of run.yaml: all keys but ``format``."""
    return {key: value for key, value in config.items() if key != "format"}
