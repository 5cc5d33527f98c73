"""hydra/sweeper=manyheads: a job for each combination of the values that are typed, with lists that go together.

As Hydra's basic sweeper, but multirun.yaml is written through the guard, which follows no link planted in the folder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.manyheads.job_launcher import Manyheads
from manyheads.runner.errors import ConfigurationError, warn

# By key, the overrides to choose one of; of keys that go together, by the first.
Groups = dict[str, list[tuple[str, ...]]]


@dataclass
class CombinationsConf:
    """``hydra.sweeper``, with the keys of Hydra's basic one and ``zip``."""

    _target_: str = "hydra_plugins.manyheads.combinations.Combinations"
    max_batch_size: int | None = None
    # Values to combine, in addition to what is typed, such as {optimizer.lr: "0.1,0.2"}.
    params: dict[str, str] | None = None
    # Keys whose values go together, the first with the first: [optimizer.lr,data.batch_size], or a list of such lists.
    zip: list[Any] = field(default_factory=list)


ConfigStore.instance().store(group="hydra/sweeper", name="manyheads", node=CombinationsConf, provider="manyheads")


class Combinations(Sweeper):
    """Runs a job for each combination of values; ``zip``: groups of keys whose values are taken together."""

    def __init__(self, max_batch_size: int | None, params: DictConfig | None = None, zip: Any = ()):
        self._batch_size = max_batch_size
        self._params: dict[str, str] = {str(key): str(text) for key, text in (params or {}).items()}
        names = cast(list[Any], OmegaConf.to_container(zip) if OmegaConf.is_config(zip) else list(zip))
        self._zipped: list[list[str]] = names if all(isinstance(name, list) for name in names) else [names]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function
        )

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Run the jobs. Raises what they raise, and ConfigurationError for a link in its place, or a wrong ``zip``."""
        from manyheads.runner.run.data_files import no_link
        from manyheads.runner.run.files import make_folder

        assert self.config is not None
        assert self.launcher is not None
        jobs = list(self._jobs(arguments))
        folder = Path(self.config.hydra.sweep.dir)
        make_folder(folder)
        with open(folder / "multirun.yaml", "w", encoding="utf-8", opener=no_link) as file:
            file.write(OmegaConf.to_yaml(self.config))
        returns: list[Sequence[JobReturn]] = []
        for batch in self._batches(jobs):
            self.validate_batch_is_legal(batch)
            results = self.launcher.launch(batch, initial_job_idx=sum(map(len, returns)))
            for result in results:
                _ = result.return_value  # raises what the job raised
            returns.append(results)
        return returns

    def _jobs(self, arguments: list[str]) -> Iterator[list[str]]:
        """The overrides of each job, the last key changing fastest."""
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        values: dict[str, list[str]] = {}
        for override in parser.parse_overrides([*(f"{key}={text}" for key, text in self._params.items()), *arguments]):
            key = override.get_key_element()
            if not override.is_sweep_override():
                values[key] = [f"{key}={override.get_value_element_as_str()}"]
            elif override.is_discrete_sweep():
                values[key] = [f"{key}={text}" for text in override.sweep_string_iterator()]
            else:
                raise ConfigurationError(
                    f"{override.input_line}: an interval has no list of values. Type some, as {key}=0.1,0.2, or let "
                    "hydra/sweeper=search choose them.",
                    key=key,
                )
        groups: Groups = {key: [(text,) for text in texts] for key, texts in values.items()}
        together: Groups = {}
        for keys in filter(None, self._zipped):
            columns = [groups.pop(_swept(key, values, groups)) for key in keys]
            if len({len(column) for column in columns}) > 1:
                counts = ", ".join(f"{key} has {len(column)}" for key, column in zip(keys, columns, strict=True))
                raise ConfigurationError(
                    f"hydra.sweeper.zip={keys}: values that go together must be equally many: {counts}.",
                    key="hydra.sweeper.zip",
                )
            together[keys[0]] = [tuple(chain(*row)) for row in zip(*columns, strict=True)]
        groups |= together
        order = {key: number for number, key in enumerate(values)}
        for combination in product(*(groups[key] for key in values if key in groups)):
            yield sorted(chain(*combination), key=lambda text: order[text.partition("=")[0]])

    def _batches(self, jobs: list[list[str]]) -> Iterator[Sequence[list[str]]]:
        if self._batch_size is None or not jobs:
            yield jobs
        # By name, since Hydra 1.3 loads the modules of plugins anew.
        elif type(self.launcher).__name__ == Manyheads.__name__:
            warn(
                "hydra.sweeper.max_batch_size has no effect, since all jobs are planned before the first one starts. "
                "hydra.launcher.jobs sets how many run at the same time."
            )
            yield jobs
        else:
            size = self._batch_size
            yield from (jobs[first : first + size] for first in range(0, len(jobs), size))


def _swept(key: str, values: dict[str, list[str]], groups: Groups) -> str:
    """The key of ``zip``. Raises ConfigurationError unless it is typed, once."""
    if key in groups:
        return key
    why = "is named twice" if key in values else "is not among the values that are typed"
    allowed = [name for name, texts in values.items() if len(texts) > 1]
    raise ConfigurationError.at("hydra.sweeper.zip", key, f" {why}. Allowed: {', '.join(allowed)}.", allowed=allowed)
