"""The columns of a run's tables. New ones are added at the end, so that older readers find theirs."""

TRAINING = ("data", "compute", "communication", "optimizer", "logging")  # parts of the training time
STEP_COLUMNS = ("epoch", "step", "samples", "loss", "lr", "grad_norm", "samples_per_second", "data_fraction")
EPOCH_COLUMNS = (
    *("epoch", "step", "started", "train_seconds", "train_loss", "train_acc1", "train_acc5"),
    *("val_seconds", "val_loss", "val_acc1", "val_acc5", "val_samples", "samples_per_second", "peak_memory_mb"),
    *(f"{part}_seconds" for part in (*TRAINING, "checkpoint")),
)
SCORES = [f"{split}_{name}" for split in ("train", "val") for name in ("loss", "acc1", "acc5")]
