import pytest

from manyheads.runner.run.model_description import Steps
from manyheads.runner.serve.rank.preprocess import _pixels
from tests.data.test_image_file import ask_within_limits


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path):
    """For models of grey and of coloured images."""

    def ask(path: str, says: str) -> None:
        for mode in ("RGB", "L"):
            with pytest.raises(ValueError, match=says):
                _pixels(path, Steps(mode, "square", 8))

    ask_within_limits(tmp_path, ask)
