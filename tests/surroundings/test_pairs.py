"""The covering array has every pair, where nothing hides it."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from tests.surroundings.pairs import covering, pairs, shown
from tests.surroundings.test_matrix import AXES, CELLS, OF_SLURM, REFUSED


def test_the_matrix_has_each_pair_where_nothing_hides_it():
    assert set(chain.from_iterable(shown(cell, REFUSED) for cell in CELLS)) == {*pairs(AXES), *pairs(OF_SLURM)}
    assert len(CELLS) < 80


@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_each_pair_is_in_a_cell(sizes):
    axes = {str(number): [f"{value}" for value in range(size)] for number, size in enumerate(sizes)}
    cells = covering(axes, ())
    assert set(chain.from_iterable(shown(cell, ()) for cell in cells)) == set(pairs(axes))
    assert cells == covering(axes, ())
