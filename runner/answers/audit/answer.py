"""The answer of the command ``audit``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from manyheads.runner.answers.audit.records import Skipped, SkippedUpdate
from manyheads.runner.errors import ExitCode, printable
from manyheads.runner.run.answer import Answer
from manyheads.runner.wording import counted

SHOWN = 20  # findings, skipped samples and skipped updates that are shown, each


@dataclass(frozen=True)
class Finding:
    """A deviation of the records from the samples that were due."""

    kind: Annotated[
        str, "lost, doubled, foreign, exchanged, unnamed, unrecorded, recorded twice, resized, changed or overlap"
    ]
    epoch: Annotated[int | None, "counted from 1"]
    update: Annotated[int | None, "its number in the run, counted from 1"]
    sample: Annotated[int | None, "its number in the training data, counted from 0"]
    text: str


@dataclass(frozen=True)
class Overlap:
    """Samples with equal content in several splits."""

    common: Annotated[int, "validation samples whose content is also a training sample's, of those that were read"]
    train: Annotated[int, "training samples"]
    val: Annotated[int, "validation samples"]
    read: Annotated[int, "the most samples of a split that are read, evenly spaced"]
    test: Annotated[int | None, "test samples; null without trainer.test"] = None
    tested: Annotated[int, "test samples whose content is also a training or validation sample's"] = 0


@dataclass(frozen=True)
class Audit(Answer):
    """Whether a run took the samples that were due."""

    run: str
    first: Annotated[int, "the first update that has a record; 0 if none has"]
    last: Annotated[int, "the last update that has a record"]
    epochs: Annotated[int, "complete epochs among these updates"]
    samples: Annotated[int, "how many samples these updates took"]
    size: Annotated[int, "number of training samples"]
    dropped: Annotated[int, "training samples that an epoch does not take, by data.drop_last or trainer.limit_train"]
    is_drawn: Annotated[bool, "whether data.sampler chose the samples, so that an epoch may take one several times"]
    is_stream: Annotated[bool, "whether samples are positions of a stream, whose content the data set decides"]
    earlier: Annotated[str | None, "the checkpoint from which it continued, of the run that has the earlier records"]
    findings: list[Finding]
    skipped: Annotated[list[Skipped], "samples that could not be read; the next readable one was used instead"]
    skipped_updates: Annotated[list[SkippedUpdate], "updates whose samples changed no weight (trainer.on_spike)"]
    overlap: Annotated[Overlap | None, "null if no data were read"]

    @property
    def exit_code(self) -> ExitCode:
        if self.findings:
            return ExitCode.NO
        return ExitCode.DONE if self.last else ExitCode.UNDECIDED

    def show(self) -> None:
        for line in self.lines():
            print(printable(line))

    def lines(self) -> Sequence[str]:
        """The answer as lines of text."""
        if not self.last:
            return [f"{self.run} has no record of its samples: it took no update."]
        lines = [f"{self.run}: updates {self.first:,} to {self.last:,}, {counted(self.samples, 'sample')}"]
        if self.earlier is not None:
            lines.append(f"earlier updates are those of another run, which has their records: {self.earlier}")
        wrong = [finding for finding in self.findings if finding.kind != "overlap"]
        lines += [finding.text for finding in wrong[:SHOWN]]
        lines += [f"... and {len(wrong) - SHOWN:,} more findings"] if len(wrong) > SHOWN else []
        if not wrong:
            dropped = f" ({self.dropped:,} are not due in an epoch)" if self.dropped else ""
            drawn = f"each update took the samples that data.sampler draws for it, of {self.size:,}"
            once = f"each epoch took each of its samples exactly once, of {self.size:,}{dropped}"
            position = f"each epoch took each of its {self.size:,} positions of the stream exactly once{dropped}"
            lines.append(drawn if self.is_drawn else position if self.is_stream else once)
        lines += [
            f"epoch {row.epoch}: sample {row.sample} was unreadable, the next one used: {row.path} ({row.reason})"
            for row in self.skipped[:SHOWN]
        ]
        lines += [f"... and {len(self.skipped) - SHOWN:,} more, in skipped.csv"] if len(self.skipped) > SHOWN else []
        return [*lines, *self._of_spikes(), *self._of_overlap()]

    def _of_spikes(self) -> list[str]:
        if not (skipped := self.skipped_updates):
            return []
        count = sum(len(update.samples) for update in skipped)
        lines = [f"{len(skipped):,} updates were skipped (trainer.on_spike), so {count:,} samples changed no weight"]
        for update in skipped[:SHOWN]:
            cause = update.reason if update.spike == update.update else f"{update.reason} of update {update.spike}"
            lines.append(f"epoch {update.epoch}: update {update.update} was skipped ({cause})")
        return [*lines, *([f"... and {len(skipped) - SHOWN:,} more, in spikes.csv"] if len(skipped) > SHOWN else [])]

    def _of_overlap(self) -> list[str]:
        if (overlap := self.overlap) is None:
            return []
        most = max(overlap.train, overlap.val, overlap.test or 0)
        read = f" (at most {overlap.read:,} of each split were read)" if overlap.read < most else ""
        lines = [f"{_shared(overlap.common, 'validation')} the content of a training sample{read}"]
        if overlap.test is not None:
            lines.append(f"{_shared(overlap.tested, 'test')} the content of a training or validation sample{read}")
        return lines


def _shared(count: int, split: str) -> str:
    return counted(count, f"{split} sample has", f"{split} samples have") if count else f"no {split} sample has"
