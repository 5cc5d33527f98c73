"""The encoding of a run that is trained, from its model.json."""

from pathlib import Path

from manyheads.runner.data.table.encoding import Encoding, encoding_of
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run.data_files import read_json


def stored_encoding(path: str, target: str) -> Encoding:
    """The encoding in a model.json. Raises ConfigurationError if it has none, or one of another target."""
    try:
        content = read_json(Path(path))
    except OSError:
        raise ConfigurationError.at(
            "data.encoding",
            path,
            ": there is no such file. It is the model.json of a run, by whose training rows columns are encoded; a "
            "text file's characters are always UTF-8. Set it to such a file, auto or null.",
        ) from None
    encoding = encoding_of(content.get("table"))
    if encoding is None:
        raise ConfigurationError.at(
            "data.encoding",
            path,
            " holds no encoding of a table. Set it to the model.json of a run on a table, or null.",
        )
    if encoding.target.name != target:
        raise ConfigurationError.at(
            "data.target", target, f": the run of {path} predicts {encoding.target.name}. Set it to that."
        )
    return encoding
