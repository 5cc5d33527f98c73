"""Hydra's composition with a look at its result, before anything in it is instantiated or imported."""

from typing import Any

from hydra._internal import hydra as hydra_application
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath
from omegaconf import DictConfig, OmegaConf

from manyheads.runner.config.fresh_folder import FRESH_FOLDER, as_typed
from manyheads.runner.run.errors import ConfigurationError
from manyheads.runner.trust.check import complaint, judge_with, plain, refuse_untrusted, trust_in_force
from manyheads.runner.trust.hydra_section import SEARCHPATH, refused_keys

_typed: list[str] = []


def guard_hydra(config_path: str | None, overrides: list[str]) -> None:
    """Let Hydra compose with ``GuardedLoader``. overrides: as typed. Raises ConfigurationError."""
    _refuse_packages("--config-path", [config_path or ""])
    _typed[:] = overrides
    hydra_application.ConfigLoaderImpl = GuardedLoader  # type: ignore[misc]


class GuardedLoader(ConfigLoaderImpl):
    """Raises ConfigurationError for each config, a run's or a sweep's job's, that the user does not trust.

    It travels to the processes of Hydra's other launchers, and takes along what it judges by.
    """

    def __init__(self, config_search_path: ConfigSearchPath):
        super().__init__(config_search_path)
        self._typed = [o for o in _typed if o.lstrip("+~").startswith(("hydra.", "hydra/"))]
        self._trust = trust_in_force()

    def load_configuration(
        self, config_name: str | None, overrides: list[str], *rest: Any, **options: Any
    ) -> DictConfig:
        composed = super().load_configuration(config_name, overrides, *rest, **options)
        assert self._trust is not None
        judge_with(self._trust)
        keys = [o for o in self._typed if "/" not in o.partition("=")[0] and SEARCHPATH not in o]
        found = refused_keys(composed, [*(o for o in overrides if o == FRESH_FOLDER), *keys])
        noted = [*as_typed(composed.hydra.overrides.hydra), *as_typed(composed.hydra.overrides.task)]
        if sorted(noted) != sorted(overrides):  # a config may not pretend that something was typed
            found.append(("hydra.overrides", ", ".join(set(noted) - set(overrides))))
        if found:
            raise ConfigurationError(complaint_of_hydra(found))
        refuse_untrusted(plain(composed), self._trust)
        return composed

    def _process_config_searchpath(self, config_name: Any, parsed_overrides: Any, repo: Any) -> None:
        """Looking for configs in a package would import it."""
        loaded = repo.load_config(config_path=config_name) if config_name is not None else None
        if loaded is not None and OmegaConf.is_dict(loaded.config):
            _refuse_packages(SEARCHPATH, OmegaConf.select(loaded.config, SEARCHPATH) or [])
        for override in parsed_overrides:
            if override.get_key_element() == SEARCHPATH:
                _refuse_packages(SEARCHPATH, override.value() or [])
        super()._process_config_searchpath(config_name, parsed_overrides, repo)


def complaint_of_hydra(found: list[tuple[str, Any]]) -> str:
    """The error's text."""
    listed = ", ".join(f"{key}={value!r}" for key, value in found)
    return (
        f"this config is not from here, and sets of Hydra's own configuration what can run code or write anywhere: "
        f"{listed}. Remove it from the config, or type what you do want on the command line."
    )


def _refuse_packages(key: str, places: Any) -> None:
    trust = trust_in_force()
    for place in places if isinstance(places, (list, tuple)) or OmegaConf.is_list(places) else [places]:
        scheme, found, path = str(place).partition("://")
        package = path.strip("/").split("/")[0]
        if found and scheme != "file" and not (scheme == "pkg" and trust is not None and trust.covers(package)):
            raise ConfigurationError(complaint([(key, package or str(place))]))
