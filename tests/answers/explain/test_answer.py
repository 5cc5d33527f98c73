from manyheads.runner.answers.explain import answer
from tests.charts.sight import alike


def test_colours_of_the_picture_are_told_apart_by_all_readers():
    assert [*alike([*answer.COLORS.values(), answer.ALONE["batch"]])] == []
