"""Whether a run's data has changed since it was started, for commands that continue, measure or check the run."""

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.provenance.fingerprint import fingerprint, forget_files
from manyheads.runner.run.data_files import read_json
from manyheads.runner.run.json_types import Fingerprint, ProvenanceJson, right
from manyheads.runner.run.run_folder import RunFolder
from manyheads.runner.wording import counted

LEAK = (
    "Validation samples are drawn from the training samples (data.val_fraction, data.folds), and are drawn anew, so "
    "the run was trained on some of them."
)


def refuse_changed(folder: RunFolder, option: DataOption) -> None:
    """Refuse to continue a run whose changed data would turn samples that it was trained on into validation samples.

    ``option``: the data that it would continue with. Other changes are warned of. Raises ConfigurationError.
    """
    if (change := change_of(folder, option)) is None:
        return
    if not folder.last_checkpoint.exists() or not draws_validation(option):
        warn(change)
        return
    raise ConfigurationError(
        f"{change} {LEAK} Restore the data, or start a new run from its weights: checkpoint.load={folder}",
        key="data.root",
    )


def warn_of_changed(folder: RunFolder, option: DataOption) -> None:
    """Warn of changed data in which a run's weights are about to be measured. Raises as ``change_of``."""
    if (change := described_change(folder, option)) is not None:
        warn(change)


def described_change(folder: RunFolder, option: DataOption) -> str | None:
    """The sentence of ``change_of`` and, if samples for training may now be for validation, one that says so."""
    change = change_of(folder, option)
    return f"{change} {LEAK}" if change is not None and draws_validation(option) else change


def change_of(folder: RunFolder, option: DataOption) -> str | None:
    """How this data differs from what a run was started on, in a sentence; None if it is the same.

    Also None if one of the two has no fingerprint, as with data.fingerprint=none. Raises ConfigurationError if
    provenance.json can't be read.
    """
    if not folder.provenance.exists():
        return None
    recorded = right(read_json(folder.provenance), ProvenanceJson).get("data")
    forget_files()  # a process that has trained may go on after the files have changed
    if recorded is None or (now := fingerprint(option)) is None or _same(recorded, now):
        return None
    return f"the data has changed since {folder} was started: there were {_size(recorded)}, now there are {_size(now)}."


def draws_validation(option: DataOption) -> bool:
    """Whether validation samples are taken from the training samples, so that more samples change which they are."""
    return option.partition is not None or option.section.get("val_fraction") is not None


def _same(recorded: Fingerprint, now: Fingerprint) -> bool:
    if recorded["contents"] and now["contents"]:
        return recorded["contents"] == now["contents"]
    return recorded["sizes"] == now["sizes"]


def _size(data: Fingerprint) -> str:
    return f"{counted(data['files'], 'file')} of {data['bytes']:,} bytes"
