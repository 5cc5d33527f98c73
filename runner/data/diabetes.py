"""data=diabetes: how 442 patients' diabetes had progressed after a year, from ten measurements.

Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_diabetes.html.
"""

import gzip
from pathlib import Path

from manyheads.runner.data.data_option import Data, DataOption
from manyheads.runner.data.samples import TableArrays
from manyheads.runner.data.scikit_learn import data_file

FILES = ("diabetes_data_raw.csv.gz", "diabetes_target.csv.gz")


class DiabetesOption(DataOption):
    """Checks that scikit-learn's files exist."""

    def check_keys(self) -> None:
        super().check_keys()
        paths()

    def sources(self) -> dict[str, Path]:
        return paths()


class Diabetes(Data):
    """Features and targets, standardized by mean and standard deviation of the training samples.

    Every fifth patient is a validation sample.
    """

    num_inputs = 10

    def split(self, *, train: bool) -> TableArrays:
        import numpy as np

        arrays = [np.loadtxt(gzip.open(path, "rt")) for path in paths().values()]  # noqa: SIM115
        validates = np.arange(len(arrays[0])) % 5 == 4
        features, values = ((v - v[~validates].mean(0)) / v[~validates].std(0) for v in arrays)
        chosen = validates != train
        return TableArrays(features[chosen].astype(np.float32), values[chosen].astype(np.float32))


def paths() -> dict[str, Path]:
    """scikit-learn's own files. Raises ConfigurationError."""
    return {name: data_file(name, option="diabetes") for name in FILES}
