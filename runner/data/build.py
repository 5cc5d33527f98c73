"""The data of a run and its loaders, from the config's section."""

import inspect
from typing import Any

from runner.data.base import Data
from runner.data.batches import Batches
from runner.data.custom import Custom
from runner.data.loader import Entrance, Loader
from runner.data.sampler import EvaluationSampler, TrainingSampler
from runner.errors import ConfigurationError
from runner.instantiate import call, locate
from runner.parallel.base import Parallel

# Every option's keys, not its class's.
LOADING = ("_target_", "batch_size", "num_workers", "drop_last", "on_corrupt", "fingerprint")


def build_data(section: dict[str, Any]) -> Data:
    """The data option; a class of the user's own is wrapped in ``Custom``."""
    kind = locate("data", section["_target_"])
    options = {key: value for key, value in section.items() if key not in LOADING}
    name = options.pop("name")
    if not (isinstance(kind, type) and issubclass(kind, Data)):
        return call("data", section["_target_"], Custom, kind, **options)
    if "name" in inspect.signature(kind).parameters:
        options["name"] = name
    return call("data", section["_target_"], kind, **options)


def build_loaders(config: dict[str, Any], data: Data, parallel: Parallel, entrance: Entrance) -> tuple[Loader, Loader]:
    """Training and evaluation batches of this rank. Raises ConfigurationError."""
    section, seed = config["data"], config["seed"]
    train, evaluation = data.split(train=True), data.split(train=False)
    share: dict[str, Any] = {
        "batch_size": section["batch_size"],
        "rank": parallel.rank,
        "world_size": parallel.world_size,
    }
    order = TrainingSampler(
        len(train),
        accumulation=config["trainer"]["grad_accumulation"],
        seed=seed,
        drop_last=section["drop_last"],
        **share,
    )
    if not order.updates:
        raise ConfigurationError(
            f"data.batch_size={section['batch_size']} is more than the {len(train)} training samples, and "
            "data.drop_last=true leaves out an incomplete batch. Lower data.batch_size, or set data.drop_last=false."
        )
    # Images in memory are never corrupt, so that their options have no such key.
    loading: dict[str, Any] = {"seed": seed, "on_corrupt": section.get("on_corrupt", "error")}
    place: dict[str, Any] = {"entrance": entrance, "num_workers": section["num_workers"]}
    return (
        Loader(Batches(train, replace_corrupt=True, **loading), order, **place),
        Loader(
            Batches(evaluation, replace_corrupt=False, **loading), EvaluationSampler(len(evaluation), **share), **place
        ),
    )
