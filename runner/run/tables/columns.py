"""The columns of a run's tables. New columns are added at the end, so that older readers find those they know."""

from collections.abc import Sequence

TRAINING = ("data", "compute", "communication", "optimizer", "logging")  # parts of the training time
STEP_COLUMNS = (
    *("epoch", "step", "samples", "loss", "lr", "grad_norm", "samples_per_second", "data_fraction"),
    "time",  # when the row's last update was made, in seconds since 1970
)
MFU = "mfu"  # model FLOPs utilization, 0 to 1: the last column of steps.csv, if the devices' peak is known
TAKEN = ("epoch", "first", "step", "samples", "digest", "of", "bits", "again")  # of samples.csv
SKIPPED = ("epoch", "step", "sample", "path", "reason")  # of skipped.csv
SPIKES = ("epoch", "step", "spike", "reason", "loss", "loss_limit", "norm", "norm_limit", "samples")  # of spikes.csv


def epoch_columns(train: Sequence[str], val: Sequence[str]) -> tuple[str, ...]:
    """The columns of epochs.csv. ``train``, ``val``: the loss and metrics of each split."""
    return (
        *("epoch", "step", "started", "train_seconds", *train),
        *("val_seconds", *val, "val_samples", "samples_per_second", "peak_memory_mb"),
        *(f"{part}_seconds" for part in (*TRAINING, "checkpoint")),
    )


def evaluation_columns(val: Sequence[str]) -> tuple[str, ...]:
    """The columns of evaluations.csv, which runs with evaluations within epochs have. ``val``: loss and metrics."""
    return ("epoch", "step", "time", "val_seconds", *val, "val_samples")
