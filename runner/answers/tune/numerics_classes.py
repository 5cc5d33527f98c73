"""The classes of numerics that configurations of a tuning have, as far as they are known."""

from dataclasses import dataclass, field

from manyheads.runner.answers.measure.pace_task import BATCH_STATISTICS
from manyheads.runner.answers.tune.race import BASE, Variant
from manyheads.runner.answers.tune.trial import SAME, SHARES, gradients_of
from manyheads.runner.answers.tune.tuning_runs import TuningRuns


@dataclass
class NumericsClasses:
    """Configurations with the same signature, the settings that determine the class, are assumed to share it."""

    runs: TuningRuns
    _by_signature: dict[tuple[object, ...], str | None] = field(default_factory=dict)

    def expected(self, candidate: Variant) -> str | None:
        """The class as it was noted for a candidate with the same signature, or as options declare it."""
        signature = self._signature(candidate)
        if signature not in self._by_signature:
            name = self.runs.trial(candidate).expected
            # Batches are sharded, but there is no BatchNorm that would notice.
            name = SAME if name == SHARES and not self.runs.facts[BATCH_STATISTICS] else name
            if signature == self._signature(BASE):  # a refused one says nothing about others with it
                return name
            self._by_signature[signature] = name
        return self._by_signature[signature]

    def note(self, candidate: Variant, name: str | None) -> None:
        """Note the class from a comparison of updates; None if the candidate may not be chosen."""
        signature = self._signature(candidate)
        if name is not None or signature != self._signature(BASE):
            self._by_signature[signature] = name

    def _signature(self, variant: Variant) -> tuple[object, ...]:
        """All settings that determine the class of numerics, as far as options declare what they do."""
        run = self.runs.run(variant)
        shares = run.data_shares, run.parallel.sync_batchnorm, run.trainer.grad_accumulation
        return run.precision.name, *shares, gradients_of(run)
