"""What does not fit is refused before any rank starts, in a sentence with the key to set."""

import pytest

from manyheads.runner.config.lookup import no_such_option
from manyheads.runner.errors import ConfigurationError
from tests.data.table.rows import NAMES, houses, save
from tests.in_process import typed

pytestmark = pytest.mark.needs("pyarrow")
PRICE = NAMES.index("price")


def with_value(column: str, value: str, *numbers: int) -> list[list[str]]:
    """The rows with this value in these rows, or in all."""
    rows, place = houses(), NAMES.index(column)
    for number in numbers or range(len(rows)):
        rows[number][place] = value
    return rows


def decimal_commas() -> list[list[str]]:
    """The rows, with prices such as 489,3."""
    return [[*row[:PRICE], f"{int(row[PRICE]) / 1000:.2f}".replace(".", ",")] for row in houses()]


def refused(root, *overrides: str) -> ConfigurationError:
    target = [] if any(o.startswith("data.target") for o in overrides) else ["data.target=price"]
    with pytest.raises(ConfigurationError) as caught:
        typed("data=table", f"data.root={root}", *target, *overrides)
    return caught.value


@pytest.mark.parametrize(
    ("rows", "overrides", "message"),
    [
        (houses(), ["data.target=prize"], r"data\.target=prize: there is no such column\. Did you mean price\?"),
        (
            with_value("price", "", 3),
            [],
            r"data\.missing_target=error: 1 of 200 rows have no price, .* row 4 of houses",
        ),
        (with_value("area", ""), [], r"the column area has no value in any row\. Set data\.columns\.area=ignore"),
        (with_value("price", "a"), [], r"data\.target=price is a in all 200 rows, so there is nothing to learn"),
        (
            with_value("area", "big", 5),
            [],
            r"1 other value: big in row 6 .*'data\.missing=\[big\]'.*columns\.area=category",
        ),
        (with_value("area", "1,5", 5), [], r"""set "data\.decimal=','"\."""),
        (with_value("area", "big", 5), ["++data.columns.area=number"], r"column area is a number, and big in row 6"),
        (houses(), ["++data.columns.sold=date %d.%m.%Y"], r"column sold is a date %d\.%m\.%Y, and 20\d\d-.* is not"),
        (
            houses(),
            ["++data.columns.color=ignore"],
            r"data\.columns\.color=ignore: .*'data\.columns={sale id: ignore}'",
        ),
        (houses(), ["data.target=null"], r"data\.target is not set\. .*one of house, area, rooms"),
        (houses(), ["data.encoding=cp1252"], r"data\.encoding=cp1252: there is no such file\. It is the model\.json"),
        (houses(), ["data.time=sold", "++data.columns.sold=ignore"], r"data\.time=sold is ignored\. Set it"),
        (
            with_value("area", "1,5"),
            ["++data.columns.area=number"],
            r"200 such values.*comma, set \"data\.decimal=','\"\.$",
        ),
        (decimal_commas(), [], r"too many to be classes\. Set \"data\.decimal=','\"\.$"),
        (
            houses(),
            ["++data.columns.city=number"],
            r"nor is any other of .*set data\.columns\.city=category, and task",
        ),
        (
            houses(),
            ["++data.columns.sold=date %d.%m.%Y"],
            r"format, such as 'data\.columns\.sold=date %Y-%m-%d'\.$",
        ),
        (houses(), ["++data.columns.color=ignore"], r"data\.columns\.color=ignore: there is no such column"),
        (houses(), ["data.group=block"], r"data\.group=block: there is no such column"),
        (houses(), ["data.time=city"], r"data\.time=city is a category, whose order is unknown"),
        (houses(), ["data.target=house"], r"data\.target=house has 200 different values in 200 rows, too many"),
        (houses(), ["data.delimiter=';'"], r"data\.delimiter=;: houses\.csv has a single column, house,area"),
        (houses(), ["task=classification", "++data.columns.price=number"], r"needs a target that is a category"),
        (
            houses(),
            ["data.target=city", "task=regression", "data.missing_target=skip"],
            r"the column city is a number, and Lima in row 2",
        ),
        (houses()[1:2], [], r"nothing to learn"),
        ([], [], r"houses\.csv has no rows"),
        ([*houses(), ["1", "2"]], [], r"row 201 has 2 values for 7 columns.*or data\.delimiter"),
        (houses(), ["++data.columns.area=text"], r"data\.columns"),
        (houses(), ["trainer.test=true"], r"trainer\.test=true: there is no file with test in its name"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path, rows, overrides, message):
    error = refused(save(tmp_path / "houses.csv", rows), *overrides)
    assert pytest.raises(ConfigurationError, match=message).matches(error), str(error)


def test_files_that_are_no_table_are_refused(tmp_path):
    assert "is empty" in str(refused(save(tmp_path / "empty.csv", [], [])))
    (tmp_path / "none.csv").write_text("")
    assert "is empty" in str(refused(tmp_path / "none.csv"))
    assert "two columns called area" in str(refused(save(tmp_path / "a.csv", houses(), ["area", *NAMES[1:]])))
    assert "does not exist" in str(refused(tmp_path / "missing.csv"))
    (tmp_path / "letter.txt").write_text("Dear reader, this is a letter.\nIt has two lines, of prose.\n")
    assert "or data.root to a table whose first line names its columns" in str(refused(tmp_path / "letter.txt"))
    (tmp_path / "binary.csv").write_bytes(b"\x7fELF\0\0\n\0,\0\n")
    (tmp_path / "western.csv").write_bytes("a,b\n1,Zürich\n".encode("cp1252"))
    assert "iconv -f cp1252 -t utf-8 western.csv" in str(refused(tmp_path / "western.csv"))
    (tmp_path / "western.csv").write_bytes(b"a,b\n" + b"1,x\n" * 40_000 + "1,Zürich\n".encode("cp1252"))
    assert "iconv -f cp1252 -t utf-8 western.csv" in str(refused(tmp_path / "western.csv", "data.target=a"))
    assert "cannot be read: it is not a text" in str(refused(tmp_path / "binary.csv"))
    (tmp_path / "folder").mkdir()
    assert "there is no table in it" in str(refused(tmp_path / "folder"))


def test_files_that_differ_are_refused(tmp_path):
    save(tmp_path / "all" / "a.csv", houses())
    save(tmp_path / "all" / "b.csv", [row[:-2] + row[-1:] for row in houses()], [*NAMES[:-2], "price"])
    assert "differ in their columns: sold" in str(refused(tmp_path / "all"))
    save(tmp_path / "split" / "train.csv", houses())
    save(tmp_path / "split" / "val.csv", with_value("area", "large", 0))
    assert "large in row 1 of val.csv is not" in str(refused(tmp_path / "split"))
    save(tmp_path / "split" / "val.csv", [row[1:] for row in houses()], NAMES[1:])
    assert "the column house, which the model needs, is missing in" in str(refused(tmp_path / "split"))
    save(tmp_path / "classes" / "train.csv", with_value("city", "Bern", *range(100)))
    save(tmp_path / "classes" / "val.csv", with_value("city", "Faro", 7))
    error = refused(tmp_path / "classes", "data.target=city", "data.missing_target=skip")
    assert "city=Faro is not a class of the training rows" in str(error)


def test_a_file_as_the_name_of_the_data_is_answered_by_the_settings_of_a_table():
    said = "To train on a table: data=table data.root=flats.csv data.target=<column>."
    assert said in str(no_such_option("data", "flats.csv"))
    assert "To train" not in str(no_such_option("model", "flats.csv"))


@pytest.mark.parametrize(
    ("model", "warned"),
    [(["model=custom", "model._target_=torch.nn.LazyLinear", "+model.out_features=1"], True), (["model=mlp"], False)],
)
def test_a_model_without_embeddings_is_told_that_it_gets_codes(table, capsys, model, warned):
    typed("data=table", f"data.root={table}", "data.target=price", *model)
    assert ("gets the codes of 2 categories as numbers" in capsys.readouterr().err) == warned
