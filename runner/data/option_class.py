"""The class behind a data section, found without torch."""

from manyheads.runner.data.base.option import Data
from manyheads.runner.data.custom.option import Custom
from manyheads.runner.run.locate import locate

OURS = "manyheads.runner.data."


def option_class(target: str) -> type[Data]:
    """The data option of that name; for a class of the user's own, which may import anything, what wraps it.

    Raises ConfigurationError where there is no such option.
    """
    return locate("data", target) if target.startswith(OURS) else Custom
