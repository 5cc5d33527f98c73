"""The options of a sweep as a whole: hydra.launcher.<key>=<value>."""

from dataclasses import dataclass, field, fields
from typing import Any

from manyheads.runner.errors import ConfigurationError, not_allowed
from manyheads.runner.option import rules

RULES = {
    "jobs": rules.either(rules.AUTO, rules.whole(1)),
    "on_failure": rules.choice("continue", "stop"),
    "on_oom": rules.choice("fail", "split"),
    "timeout": rules.either(rules.NULL, rules.number(above=0)),
    "repeat": rules.whole(1),
    "repeat_seed": rules.choice("vary", "same"),
    "interleave": rules.BOOLEAN,
    "share_devices": rules.BOOLEAN,
    "dry_run": rules.BOOLEAN,
}


@dataclass
class Options:
    """Defaults of ``hydra/launcher=manyheads``."""

    # Jobs at once, each in a process and on devices of its own. auto: as many as have room, here, or on the machines
    # of launcher=ray or slurm, where one more waits. Timings want 1.
    jobs: Any = 1
    # After a failed job: continue with the others, or stop.
    on_failure: Any = "continue"
    # A job that runs out of device memory fails, or is split: run again with half the micro-batch, twice accumulated.
    on_oom: Any = "fail"
    # Minutes after which a job is ended as failed, where launcher.timeout says nothing else.
    timeout: Any = None
    # How many times each job is run.
    repeat: Any = 1
    # Repeats vary in their seed (seed, seed + 1, ...), or have the same.
    repeat_seed: Any = "vary"
    # All jobs once, then all again, so that none has the machine's best hour; else a job's repeats in a row.
    interleave: Any = False
    # Combinations to leave out, such as "parallel=dp,precision=apex"; one, or a list.
    exclude: Any = field(default_factory=list)
    # With jobs > 1: GPU jobs may run on GPUs that another one uses.
    share_devices: Any = False
    # Only show what would be run.
    dry_run: Any = False

    def check(self) -> None:
        """Raises ConfigurationError, naming the key, for a value that is not allowed."""
        for key, rule in RULES.items():
            if not rule.accepts(value := getattr(self, key)):
                raise not_allowed(f"hydra.launcher.{key}", value, rule.allowed, values=rule.values)

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Options":
        """The options in a ledger's first line; keys of other versions are ignored."""
        if not isinstance(values, dict):
            raise ConfigurationError("the ledger cannot be read: its options are not a mapping.")
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})
