"""What an audit says of whole runs, killed and resumed runs, and runs in which samples were lost or exchanged."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads.runner.answers.audit.audit_run import audit
from manyheads.runner.data.order import Feistel, Shuffle
from manyheads.runner.data.rank.sampler import BatchIndices, TrainingSampler
from manyheads.runner.errors import ConfigurationError, ExitCode
from manyheads.runner.loop.observers import sample_record
from tests.in_process import small, train
from tests.loop.test_session import killed_after

ORDER = Shuffle(160, seed=1)  # of the small run: 20 updates of 8 samples, twice
ROW = ("epoch", "kind", "update", "sample")


def due(epoch: int, update: int) -> list[int]:
    """The samples of an update, all counted from 0."""
    return ORDER.at(epoch, np.arange(8 * update, 8 * update + 8)).tolist()


def plant(monkeypatch, faults: dict[tuple[int, int], Any]) -> None:
    """Change the samples of updates, by epoch and update from 0."""
    share = TrainingSampler._share

    def changed(self, epoch, batch, *rest) -> BatchIndices:
        request = share(self, epoch, batch, *rest)
        fault = faults.get((epoch, int(batch[0]) // 8))
        if fault is None:
            return request
        indices = np.array(fault(request.indices.tolist()))
        return request._replace(indices=indices, count=len(indices))

    monkeypatch.setattr(TrainingSampler, "_share", changed)


def found(path: Path) -> set[tuple[Any, ...]]:
    answer = audit(str(path), reads_data=False)
    assert answer.exit_code == (ExitCode.NO if answer.findings else ExitCode.DONE)
    return {tuple(getattr(each, name) for name in ROW) for each in answer.findings}


def rewrite(path: Path, keep) -> None:
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    kept = [row for row in rows if keep(dict(zip(header, row, strict=True)))]
    path.write_text("\n".join(",".join(row) for row in [header, *kept]) + "\n")


@pytest.mark.parametrize(
    "options",
    [
        ("data.order=feistel", "data.drop_last=false", "data.train_samples=163"),
        ("trainer.mixup_alpha=0.2", "trainer.grad_accumulation=2", "checkpoint.every=7"),
        ("trainer.overfit=3", "trainer.evaluate_every=2steps"),
        ("trainer.aug_repeats=3", "trainer.limit_train=0.5"),
    ],
)
def test_a_run_that_took_what_was_due_passes(tmp_path, options):
    run = train(tmp_path, small(*options))
    answer = audit(str(tmp_path), reads_data=False)
    assert answer.exit_code == ExitCode.DONE, answer.findings
    assert (answer.first, answer.last, answer.epochs) == (1, run.trainer.progress.step, 2)
    assert answer.samples == run.trainer.progress.samples


def test_a_run_that_was_killed_and_resumed_has_the_records_of_one_that_was_not(tmp_path):
    """The rows of updates after the checkpoint, which another attempt makes again, are cut."""
    config = small("checkpoint.every=13")
    train(tmp_path / "undisturbed", config)
    killed_after(tmp_path / "killed", config, 18)
    rows = (tmp_path / "killed" / "samples.csv").read_text()
    train(tmp_path / "killed", config)
    assert (tmp_path / "killed" / "samples.csv").read_text() == (tmp_path / "undisturbed" / "samples.csv").read_text()
    assert rows.splitlines()[-1].startswith("1,1,13,")
    assert not found(tmp_path / "killed")


def test_a_run_that_continues_another_one_names_it(tmp_path):
    train(tmp_path / "first", small("trainer.epochs=1"))
    last = tmp_path / "first" / "checkpoints" / "last.pt"
    train(tmp_path / "second", small(f"checkpoint.resume={last}"))
    answer = audit(str(tmp_path / "second"), reads_data=False)
    assert (answer.exit_code, answer.first, answer.last) == (ExitCode.DONE, 21, 40)
    assert answer.earlier == str(last)


@pytest.fixture
def short_rows(monkeypatch):
    """Rows of samples.csv for as many updates as those of steps.csv have."""
    monkeypatch.setattr(sample_record, "UPDATES", 1)


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("has_bits", [True, False])
def test_what_was_planted_is_named(tmp_path, monkeypatch, has_bits):
    """With the bitmaps, and as after a crash by the hashes alone; each fault is in a log window of its own."""
    stranger = due(1, 17)[3]
    with monkeypatch.context() as patch:
        faults = {
            (0, 2): lambda samples: samples[1:],  # lost
            (0, 10): lambda samples: [*samples, samples[5]],  # doubled
            (1, 3): lambda samples: [stranger, *samples[1:]],  # swapped for one that comes again later
        }
        plant(patch, faults)
        train(tmp_path, small())
    if not has_bits:
        rewrite(tmp_path / "samples.csv", lambda row: not row["bits"])
    expected = {
        (1, "lost", 3, due(0, 2)[0]),
        (1, "doubled", 11, due(0, 10)[5]),
        (2, "lost", 24, due(1, 3)[0]),
    }
    assert found(tmp_path) - expected == {(2, "doubled" if has_bits else "foreign", 38, stranger)}
    assert expected <= found(tmp_path)


@pytest.mark.usefixtures("short_rows")
def test_samples_that_were_exchanged_between_updates_are_named(tmp_path, monkeypatch):
    one, other = due(0, 1)[4], due(0, 18)[6]
    with monkeypatch.context() as patch:
        exchange = {one: other, other: one}
        fault = lambda samples: [exchange.get(each, each) for each in samples]  # noqa: E731
        plant(patch, {(0, 1): fault, (0, 18): fault})
        train(tmp_path, small("trainer.epochs=1"))
    assert found(tmp_path) in ({(1, "exchanged", 2, one)}, {(1, "exchanged", 19, other)})


def test_a_whole_update_that_was_lost_is_named_sample_by_sample(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        plant(patch, {(0, 7): lambda samples: due(0, 8)})
        train(tmp_path, small("trainer.epochs=1"))
    assert found(tmp_path) == {
        *((1, "lost", 8, sample) for sample in due(0, 7)),
        *((1, "doubled", 9, sample) for sample in due(0, 8)),
    }


@pytest.mark.usefixtures("short_rows")
def test_records_that_do_not_fit_together_are_named(tmp_path):
    train(tmp_path, small())
    table = tmp_path / "samples.csv"
    content = table.read_text()
    rewrite(table, lambda row: row["first"] != "9")
    assert ("unrecorded", 9) in {(kind, update) for _, kind, update, _ in found(tmp_path)}
    again = next(line for line in content.splitlines() if line.startswith("1,9,16,"))
    table.write_text(content + again + "\n")
    assert ("recorded twice", 9) in {(kind, update) for _, kind, update, _ in found(tmp_path)}
    table.write_text(re.sub(r"^(2,.*,)160(,,)$", r"\g<1>170\2", content, flags=re.MULTILINE))  # files were added
    assert ("resized", 21) in {(kind, update) for _, kind, update, _ in found(tmp_path)}
    for line in ("1,9,16,64,zz,160,,", "1,16,9,64,00,160,,", "1,9,16,64,00,99999999999999,,", "1,9"):
        table.write_text(content + line + "\n")
        with pytest.raises(ConfigurationError, match=r"samples\.csv is damaged: line \d+ is not a row"):
            audit(str(tmp_path), reads_data=False)
    table.unlink()
    assert audit(str(tmp_path), reads_data=False).exit_code == ExitCode.UNDECIDED


def test_unreadable_samples_are_on_record(tmp_path):
    odd = ("data=custom", "data._target_=tests.answers.audit.test_audit.Spoilt", "data.num_classes=3")
    train(tmp_path, small(*odd, "data.on_corrupt=skip", "data.num_workers=2", "model.width=2"))
    answer = audit(str(tmp_path), reads_data=False)
    assert answer.exit_code == ExitCode.DONE
    assert sorted((each.epoch, each.sample, each.reason) for each in answer.skipped) == [
        (epoch, sample, "disk on fire") for epoch in (1, 2) for sample in (2, 3)
    ]
    assert any(re.search(r"epoch 1: sample 2 was unreadable.*disk on fire", line) for line in answer.lines())


def test_samples_that_both_splits_hold_are_counted(tmp_path):
    """In a process of its own, which reads the data."""
    odd = ("data=custom", "data._target_=tests.answers.audit.test_audit.Shared", "data.num_classes=3")
    train(tmp_path, small(*odd, "model.width=2", "trainer.epochs=1"))
    answer = audit(str(tmp_path))
    assert answer.overlap is not None
    assert (answer.overlap.common, answer.exit_code) == (5, ExitCode.NO)
    assert "5 validation samples have the content of a training sample" in answer.lines()


def test_test_samples_that_other_splits_hold_are_counted(tmp_path):
    odd = ("data=custom", "data._target_=tests.answers.audit.test_audit.Shared", "data.num_classes=3")
    train(tmp_path, small(*odd, "model.width=2", "trainer.epochs=1", "trainer.test=true"))
    answer = audit(str(tmp_path))
    assert answer.overlap is not None
    assert (answer.overlap.test, answer.overlap.tested, answer.exit_code) == (48, 3, ExitCode.NO)
    assert "3 test samples have the content of a training or validation sample" in answer.lines()
    assert answer.findings[-1].text == "3 test samples are training or validation samples"


def test_the_order_of_a_computed_run_is_recomputed(tmp_path):
    train(tmp_path, small("data.order=feistel", "trainer.epochs=1"))
    with open(tmp_path / "samples.csv", newline="") as file:
        first = next(csv.DictReader(file))
    from manyheads.runner.data.keys import Multiset

    own = Feistel(160, seed=1).at(0, np.arange(160))
    assert (first["first"], first["step"], first["digest"]) == ("1", "20", Multiset.of(0, own).digest)


class Plain:
    """48 images, the same in every process."""

    def __init__(self, split: str):
        import torch

        generator = torch.Generator().manual_seed(len(split))
        self.images = torch.rand(48, 3, 8, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], index % 3


class Spoilt(Plain):
    """Two samples can't be read when training."""

    def __init__(self, split: str):
        super().__init__(split)
        self.bad = (2, 3) if split == "train" else ()

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index in self.bad:
            raise OSError("disk on fire")
        return super().__getitem__(index)


class Shared(Plain):
    """Five validation samples are training samples too; two test samples are, and a third is a validation sample."""

    def __init__(self, split: str):
        super().__init__(split)
        if split == "val":
            self.images[:5] = Plain("train").images[20:25]
        if split == "test":
            self.images[:2], self.images[2] = Plain("train").images[:2], Plain("val").images[-1]
