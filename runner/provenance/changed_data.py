"""Whether a run's data has changed since it was started, for commands that continue, measure or check the run."""

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.data.partition import KEYS
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.option.tree import Section
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
    before = folder.read_config()["data"]
    if before.get("_target_") != option.section.get("_target_"):  # other samples, whose number says nothing
        return
    trained = folder.last_checkpoint.exists()
    if trained and (key := _redrawn(before, option.section)) is not None:
        raise ConfigurationError(
            f"data.{key}={option.section.get(key)}, and {folder} was started with {before.get(key)}. {LEAK} Leave it "
            f"as it was, or start a new run from its weights: checkpoint.load={folder}",
            key=f"data.{key}",
            value=option.section.get(key),
        )
    if (change := change_of(folder, option)) is None:
        return
    if not trained or not option.draws_validation:
        warn(change)
        return
    raise ConfigurationError(
        f"{change} {LEAK} Restore the data, or start a new run from its weights: checkpoint.load={folder}",
        key="data.root",
    )


def _redrawn(before: Section, now: Section) -> str | None:
    """The key whose change makes training samples those for validation; None if there is none.

    A smaller fraction is a part of the larger one: its samples were never trained on.
    """
    if now.get("val_fraction") is None and now.get("folds") is None:
        return None
    changed = [key for key in KEYS if before.get(key) != now.get(key)]
    if changed == ["val_fraction"] and (before.get("val_fraction") or 0.0) > now["val_fraction"]:
        return None
    return changed[0] if changed else None


def warn_of_changed(folder: RunFolder, option: DataOption) -> None:
    """Warn of changed data in which a run's weights are about to be measured. Raises as ``change_of``."""
    if (change := described_change(folder, option)) is not None:
        warn(change)


def warn_of_copy(folder: RunFolder, option: DataOption) -> None:
    """Warn of data in another location, if it may be a copy of what a run was trained on. Raises as ``change_of``."""
    recorded = _recorded(folder) if option.draws_validation else None
    if recorded is not None and (now := fingerprint(option)) is not None and _same(recorded, now):
        warn(
            f"data.root={option.root} has as many files as the data that {folder} was trained on, of the same names "
            "and sizes. If it is a copy, samples that trained the model may be among those that are measured."
        )


def described_change(folder: RunFolder, option: DataOption) -> str | None:
    """The sentence of ``change_of`` and, if samples for training may now be for validation, one that says so."""
    change = change_of(folder, option)
    return f"{change} {LEAK}" if change is not None and option.draws_validation else change


def change_of(folder: RunFolder, option: DataOption) -> str | None:
    """How this data differs from what a run was started on, in a sentence; None if it is the same.

    Also None if one of the two has no fingerprint, as with data.fingerprint=none. Raises ConfigurationError if
    provenance.json can't be read.
    """
    recorded = _recorded(folder)
    forget_files()  # a process that has trained may go on after the files have changed
    if recorded is None or (now := fingerprint(option)) is None or _same(recorded, now):
        return None
    return f"the data has changed since {folder} was started: there were {_size(recorded)}, now there are {_size(now)}."


def _recorded(folder: RunFolder) -> Fingerprint | None:
    """The fingerprint of the data that a run was started on; None if there is none."""
    if not folder.provenance.exists():
        return None
    return right(read_json(folder.provenance), ProvenanceJson).get("data")


def _same(recorded: Fingerprint, now: Fingerprint) -> bool:
    if recorded["contents"] and now["contents"]:
        return recorded["contents"] == now["contents"]
    return recorded["sizes"] == now["sizes"]


def _size(data: Fingerprint) -> str:
    return f"{counted(data['files'], 'file')} of {data['bytes']:,} bytes"
