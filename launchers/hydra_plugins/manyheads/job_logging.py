"""hydra/job_logging=manyheads: as Hydra's default, but the terminal shows only warnings, since rank 0 prints there."""

from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(
    group="hydra/job_logging",
    name="manyheads",
    node={"defaults": ["default"], "handlers": {"console": {"level": "WARNING"}}},
    provider="manyheads",
)
