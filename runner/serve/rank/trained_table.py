"""A model that was trained on a table: predictions for rows of files, and its form for other programs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.runner.data.table.encoding import Encoding, encoding_of
from manyheads.runner.data.table.files import TableFormat, TextColumns, files_of, of_rows, read
from manyheads.runner.errors import ConfigurationError, warn
from manyheads.runner.serve.rank.trained import Trained

AT_ONCE = 2**14  # rows in a batch


class TrainedTable(Trained):
    """A trained model of rows. ``outputs`` and ``model`` take encoded rows, (N, inputs) float32."""

    @property
    def encoding(self) -> Encoding:
        """How a row becomes the model's input, by what the training rows said."""
        if (encoding := encoding_of(self.description.table)) is None:
            raise ConfigurationError(f"{self.folder}/model.json cannot be read: table has another form. Restore it.")
        return encoding

    def predict(self, images: Any) -> Any:
        """A value for each row, in the target's own unit, or a Prediction with its class.

        images: a CSV, TSV or Parquet file, a list of rows, each a dict by column, or one row, which gives one value.
        Columns that the model does not need are ignored. Raises ConfigurationError for a missing column.
        """
        if isinstance(images, Mapping):
            return self.predict([images])[0]
        texts = self.texts(images) if isinstance(images, (str, Path)) else of_rows(images, self._reading)
        return self.values(self.rows(texts))

    def texts(self, path: str | Path) -> TextColumns:
        """The rows of a file, or of all files in a folder. Raises ConfigurationError."""
        with without_keys():
            return read([file for files in files_of(str(path)).values() for file in files], self._reading)

    def rows(self, texts: TextColumns) -> Tensor:
        """The rows, encoded: (N, inputs) float32. Values that training did not have are named in a warning."""
        encoding = self.encoding
        with without_keys():
            raw = encoding.raw(texts)
        if unknown := encoding.unknown(texts):
            warn(f"seen less than twice in training, so nothing is known of it: {'; '.join(unknown)}")
        return torch.from_numpy(encoding.inputs(raw))

    def values(self, rows: Tensor) -> list[Any]:
        """The predictions for encoded rows."""
        parts, target = rows.split(AT_ONCE), self.encoding.target
        if target.classes is not None:
            return [prediction for part in parts for prediction in self._classes(part)]
        outputs = torch.cat([self.outputs(part).double().cpu().reshape(len(part)) for part in parts])
        return (outputs * target.std + target.mean).tolist()

    @property
    def _reading(self) -> TableFormat:
        data = self.config["data"]
        return TableFormat(data["delimiter"], data["decimal"], tuple(data["missing"]))


@contextmanager
def without_keys() -> Iterator[None]:
    """A context in which errors about a file don't name keys of training, which a prediction doesn't take."""
    try:
        yield
    except ConfigurationError as error:
        message = re.sub(r"[;,] (?:or|if) [^;]*data\.[^;]*", "", str(error).removeprefix("data.root="))
        raise ConfigurationError(f"{message.rstrip('.')}.") from None


class FromValues(nn.Module):
    """Takes rows of the columns' values (N, columns) float32, and returns class logits, or values in their own unit.

    Numbers come first, as they stand in the files, dates in days since 1970, NaN where there is none; then categories,
    as positions in their lists, from 1, 0 for others.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, encoding: Encoding):
        super().__init__()
        self.model, self.marked, self.count = model, encoding.marked, len(encoding.numbers)
        self.scale = (encoding.target.std, encoding.target.mean) if encoding.target.classes is None else (1.0, 0.0)
        for name in ("mean", "std"):
            values = [getattr(column, name) for column in encoding.numbers]
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))

    def forward(self, values: Tensor) -> Tensor:
        numbers, codes = values[:, : self.count], values[:, self.count :]
        missing = numbers.isnan()
        standardized = torch.where(missing, 0.0, (numbers - self.mean) / self.std)
        rows = torch.cat([standardized, missing[:, self.marked].float(), codes], dim=1)
        return self.model(rows) * self.scale[0] + self.scale[1]


def from_values(trained: Trained) -> tuple[nn.Module, tuple[int, ...]]:
    """The model as other programs call it, and the shape of one input."""
    encoding = encoding_of(trained.description.table)
    assert encoding is not None
    return FromValues(trained.model, encoding), (len(encoding.names),)


def cells(prediction: Any) -> list[Any]:
    """A prediction as cells of a table."""
    if isinstance(prediction, float):
        return [f"{prediction:.8g}"]
    return [cell for label, share in prediction.top for cell in (label, f"{share:.6f}")]
