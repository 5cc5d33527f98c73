"""Whether a run's folder was edited after the run ended, by the digests in its result.json."""

from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.json_types import ResultJson
from manyheads.runner.run.run_folder import RunFolder


def refuse_edited(folder: RunFolder, result: ResultJson) -> None:
    """Raises ConfigurationError that names the files that differ from when the run ended."""
    now, recorded = folder.digests(), result.get("files")
    if not isinstance(recorded, dict):
        raise ConfigurationError(f"{folder.result} has no digests of the run's files. Restore it from a copy.")
    if changed := sorted(name for name in {*now, *recorded} if now.get(name) != recorded.get(name)):
        how = {
            name: "is missing" if name not in now else "was added" if name not in recorded else "" for name in changed
        }
        named = ", ".join(f"{name} {how[name]}".strip() for name in changed)
        raise ConfigurationError(
            f"{folder} was edited after it ended ({named}; by the digests in {folder.result.name}), so it can't be "
            "verified. Restore it from a copy."
        )
