"""hydra/sweeper=manyheads: Hydra's basic one, which writes multirun.yaml through the guard, without following links."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from hydra_plugins.manyheads.job_launcher import Manyheads
from manyheads.runner.errors import warn


@dataclass
class GuardedSweeperConf:
    """``hydra.sweeper``, with the keys of Hydra's basic one."""

    _target_: str = "hydra_plugins.manyheads.basic_sweeper.GuardedSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None


ConfigStore.instance().store(group="hydra/sweeper", name="manyheads", node=GuardedSweeperConf, provider="manyheads")


class GuardedSweeper(BasicSweeper):
    """Runs a job for each combination of the values."""

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Run the jobs. Raises what they raise, and ConfigurationError for a link in its place."""
        from manyheads.runner.run.data_files import no_link
        from manyheads.runner.run.files import make_folder

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        # By name, since Hydra loads the modules of plugins anew.
        if type(self.launcher).__name__ == Manyheads.__name__ and self.max_batch_size is not None:
            warn(
                "hydra.sweeper.max_batch_size has no effect, since all jobs are planned before the first one starts. "
                "hydra.launcher.jobs sets how many run at the same time."
            )
            self.max_batch_size = None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        typed = parser.parse_overrides([*self._parse_config(), *arguments])
        self.overrides = self.split_arguments(typed, self.max_batch_size)
        folder = Path(self.config.hydra.sweep.dir)
        make_folder(folder)
        with open(folder / "multirun.yaml", "w", encoding="utf-8", opener=no_link) as file:
            file.write(OmegaConf.to_yaml(self.config))
        returns: list[Sequence[JobReturn]] = []
        while not self.is_done():
            batch = self.get_job_batch()
            self.validate_batch_is_legal(batch)
            results = self.launcher.launch(batch, initial_job_idx=sum(map(len, returns)))
            for result in results:
                _ = result.return_value  # raises what the job raised
            returns.append(results)
        return returns
