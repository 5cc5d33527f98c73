"""Hydra with a memory: each choice of options in conf/ is composed once by all tests, at a tenth of a second each.

A config that was saved, and one with options of others than conf/ and Hydra (a folder of the user's own, a typed file),
is composed anew each time; the same text of YAML is parsed once.
"""

import atexit
import hashlib
import io
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, ListConfig, OmegaConf

from manyheads.runner.config.composing import Compositions
from manyheads.runner.config.hydra_version import VERSION_BASE
from manyheads.runner.config.lookup import CONF

SHARED = "TESTS_COMPOSED"  # the folder that the tests' processes share: files of pickled configs
HYDRAS = {"hydra", "_dummy_empty_config_.yaml"}  # what Hydra and the plugins store
KNOWN = {"pkg://hydra.conf", str(CONF), f"file://{CONF}", "structured://"}
_compose = ConfigLoaderImpl._load_configuration_impl
_load = OmegaConf.load
_compositions: dict[str, Compositions] = {}  # by the job's name, which is in the config
_parsed: dict[str, Any] = {}


def composed(*overrides: str) -> DictConfig:
    """What Hydra hands to ``python run.py <overrides>``, to be changed at will."""
    with initialize_config_dir(str(CONF), job_name="train", **VERSION_BASE):
        return compose("config", list(overrides))


def share() -> None:
    """Give this process and all that it starts a folder for what they compose, which is deleted at its end."""
    os.environ[SHARED] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)


def forget_stored() -> None:
    """Remove the options that a test has stored with Hydra: later tests know none of them, and remember again."""
    store = ConfigStore.instance()
    store.repo = {key: options for key, options in store.repo.items() if key in HYDRAS}


def remember() -> None:
    """Give this process's Hydra its memory."""
    ConfigLoaderImpl._load_configuration_impl = _compose_or_remember  # type: ignore[method-assign]
    OmegaConf.load = staticmethod(_load_or_remember)  # type: ignore[method-assign]


def _load_or_remember(file: Any) -> DictConfig | ListConfig:
    if not isinstance(file, io.TextIOBase):
        return _load(file)
    text = file.read()
    if text not in _parsed:
        _parsed[text] = OmegaConf.to_container(_load(io.StringIO(text)))
    return OmegaConf.create(_parsed[text])


def _compose_or_remember(loader: ConfigLoaderImpl, config_name: str, overrides: list[str], **how: Any) -> DictConfig:
    sources = {source.path for source in loader.config_search_path.get_path()}
    others = not sources <= KNOWN or not ConfigStore.instance().repo.keys() <= HYDRAS
    if config_name != "config" or others or any("env_copy" in each for each in overrides):
        return _compose(loader, config_name, overrides, **how)
    known = _compositions.setdefault(JobRuntime.instance().get("name"), Compositions(_compose_or_load))
    config = known.compose(loader, config_name, overrides, **how)
    config.hydra.runtime.cwd = os.getcwd()
    return config


def _compose_or_load(loader: ConfigLoaderImpl, config_name: str, options: list[str], **how: Any) -> DictConfig:
    """What another process has composed already is read."""
    if not (folder := os.environ.get(SHARED)):
        return _compose(loader, config_name, options, **how)
    asked = (JobRuntime.instance().get("name"), config_name, options, how, loader.get_search_path().get_path())
    file = Path(folder) / hashlib.sha256(repr(asked).encode()).hexdigest()
    if not file.exists():
        new = file.with_suffix(f".{os.getpid()}")
        new.write_bytes(pickle.dumps(_compose(loader, config_name, options, **how)))
        new.rename(file)
    return pickle.loads(file.read_bytes())
