"""data=table: rows by what the training rows of a fold say."""

import json
import re

import numpy as np
import pytest

import manyheads
from manyheads.launchers.launch import launch, prepare
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.table.encoding import encoding_of
from manyheads.runner.errors import ConfigurationError
from tests.data.table.rows import NAMES, houses, save
from tests.in_process import attempt, small, train, typed
from tests.launchers.conftest import freeze
from tests.tail import tail

pytestmark = pytest.mark.needs("pyarrow")
PRICE = NAMES.index("price")
FOUR = ("++data.columns.house=ignore", "model.width=16", "trainer.epochs=4", "optimizer.lr=0.01")


def build(root, *overrides: str):
    target = [] if any(o.startswith("data.target") for o in overrides) else ["data.target=price"]
    return build_data(typed("data=table", f"data.root={root}", *target, *overrides).data)


def test_kinds_are_inferred_and_can_be_set(table):
    data = build(table)
    assert data.kinds == {
        **dict.fromkeys(("area", "rooms"), "number"),
        **dict.fromkeys(("house", "city"), "category"),
        "garden": "boolean",
        "sold": "date",
    }
    assert build(table, "++data.columns.rooms=category", "++data.columns.house=ignore").categories == (8, 6)
    text = " ".join(f"{key}: {value}" for key, value in data.facts.items())
    for said in (
        *("target: price, a number", "2 numbers: area, rooms", "2 categories: house, city", "1 date: sold"),
        *("area (11.5%): filled by", "house: nearly all values differ", "data.columns.house=ignore"),
        *("rooms: few whole numbers, taken as numbers", "a random 20% of the rows"),
    ):
        assert said in text


def test_the_task_follows_from_the_target_unless_typed(table):
    run = typed("data=table", f"data.root={table}", "data.target=price")
    assert (run.task.name, run.model.name, run.optimizer.name) == ("regression", "mlp", "adamw")
    assert run.loss["_target_"] == "torch.nn.MSELoss"
    rooms = ("data=table", f"data.root={table}", "data.target=rooms")
    assert typed(*rooms).task.name == "classification"
    assert typed(*rooms, "task=regression").task.name == "regression"
    assert typed(*rooms, "++data.columns.rooms=number").task.name == "regression"
    assert typed(*rooms, "model=custom", "model._target_=torch.nn.LazyLinear", "+model.out_features=6").model.name


@pytest.mark.parametrize("fold", [0, 2])
def test_only_the_training_rows_of_a_fold_say_how_numbers_are_scaled_and_filled(table, fold):
    data = build(table, "data.folds=4", f"data.fold={fold}")
    train, val = data.split(train=True), data.split(train=False)
    assert (len(train.features), len(val.features)) == (150, 50)
    area = np.array([float(row[1] or "nan") for row in houses()])[data.masks[0]]
    column = data.fitted.numbers[0]
    assert (column.mean, column.std) == (pytest.approx(np.nanmean(area)), pytest.approx(np.nanstd(area)))
    missing = np.isnan(area)
    assert np.allclose(
        train.features[:, 0], np.where(missing, 0, (area - np.nanmean(area)) / np.nanstd(area)), atol=1e-6
    )
    assert np.array_equal(train.features[:, len(data.fitted.numbers)], missing)
    prices = np.array([float(row[PRICE]) for row in houses()])
    assert np.array_equal(np.sort(np.concatenate([train.targets, val.targets])), np.sort(prices))
    assert data.scale == (pytest.approx(train.targets.mean()), pytest.approx(train.targets.std()))


def test_rows_of_a_group_stay_together_and_the_last_ones_by_time_validate(tmp_path):
    rows = [[*row, str(number % 17)] for number, row in enumerate(houses())]
    root = save(tmp_path / "houses.csv", rows, [*NAMES, "street"])
    streets = np.array([row[-1] for row in rows])
    for keys in (["data.val_fraction=0.3"], ["data.folds=4", "data.fold=1"]):
        trains, validates = build(root, "data.group=street", *keys).masks
        assert not {*streets[trains]} & {*streets[validates]}
        assert 0.2 < validates.mean() < 0.36
    sold = np.array([row[5] for row in rows])
    for keys in (["data.val_fraction=0.3"], ["data.folds=4", "data.fold=1"], ["data.folds=4", "data.fold=3"]):
        trains, validates = build(root, "data.time=sold", *keys).masks
        assert max(sold[trains]) < min(sold[validates])
        assert validates.sum() >= 40


def test_columns_that_give_the_target_away_are_named(tmp_path):
    rows = [[*row, f"{float(row[PRICE]) / 7.5:.0f}"] for row in houses()]
    root = save(tmp_path / "houses.csv", rows, [*NAMES, "tax"])
    assert build(root).facts["leaks"].startswith("tax: predicts the target alone")
    assert "leaks" not in build(root, "++data.columns.tax=ignore").facts
    rows = [[*row, {"Bern": "x", "Oslo": "y"}.get(row[3], "z" + row[3][:1])] for row in houses() if row[3]]
    root = save(tmp_path / "cities.csv", rows, [*NAMES, "code"])
    assert build(root, "data.target=city").facts["leaks"].startswith("code: ")


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_number_that_is_a_code_of_the_target_gives_it_away(tmp_path, kind):
    """Whatever the order of its codes is, and however rare they are."""
    grades = ["1"] * 400 + ["50"] * 6 + ["3"] * 4 + ["100"] * 3
    codes = {"1": "0", "50": "4", "3": "7", "100": "2"}
    rows = [[*row, grade, codes[grade]] for row, grade in zip(houses(len(grades)), grades, strict=True)]
    root = save(tmp_path / "graded.csv", rows, [*NAMES, "grade", "code"])
    facts = build(root, "data.target=grade", f"++data.columns.grade={kind}", "++data.columns.code=number").facts
    assert facts["leaks"].startswith("code: ")


def test_rows_without_a_target_are_counted(tmp_path):
    rows = houses()
    for row in rows[3:5]:
        row[NAMES.index("price")] = ""
    data = build(save(tmp_path / "houses.csv", rows), "data.missing_target=skip")
    assert data.facts["target"] == "price, a number; skipped: 2 rows without it"


@pytest.mark.parametrize("form", ["tsv", "semicolon", "parquet", "gz"])
def test_all_formats_hold_the_same_samples(tmp_path, table, form):
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    other, given = tmp_path / "other.tsv", []
    if form == "tsv":
        save(other, houses(), delimiter="\t")
    elif form == "semicolon":
        rows = [[value.replace(".", ",") for value in row] for row in houses()]
        other, given = save(tmp_path / "other.csv", rows, delimiter=";"), ["data.decimal=','"]
    elif form == "gz":
        import gzip

        other = tmp_path / "other.csv.gz"
        other.write_bytes(gzip.compress(table.read_bytes()))
    else:
        other = tmp_path / "other.parquet"
        typed_columns = pyarrow.csv.read_csv(table)
        assert [str(field.type) for field in typed_columns.schema][1:3] == ["double", "int64"]
        pyarrow.parquet.write_table(typed_columns, other)
    one, another = build(table), build(other, *given)
    for is_train in (True, False):
        assert np.array_equal(one.split(train=is_train).features, another.split(train=is_train).features)
        assert np.array_equal(one.split(train=is_train).targets, another.split(train=is_train).targets)


def test_files_are_divided_by_their_names(tmp_path):
    rows = houses()
    files = {name: save(tmp_path / "all" / f"{name}.csv", rows[at]) for name, at in PARTS.items()}
    sizes = {
        (str(tmp_path / "all"),): (100, 60, 40),
        (str(tmp_path / "all"), "data.val_fraction=0.2"): (80, 20, 60),
        (f"[{files['train_a']},{files['train_b']}]",): (80, 20, None),
    }
    for (root, *overrides), expected in sizes.items():
        data = build(root, *overrides)
        test = len(data.test().targets) if expected[2] else None
        assert (len(data.split(train=True).targets), len(data.split(train=False).targets), test) == expected


PARTS = {"train_a": slice(0, 60), "train_b": slice(60, 100), "val": slice(100, 160), "test": slice(160, 200)}


def test_the_loss_and_metrics_are_in_the_unit_of_the_target(tmp_path, table):
    """The weights are those of a standardized target; what is reported is that of the target itself."""
    import torch
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    run = train(tmp_path / "run", small("data=table", f"data.root={table}", "data.target=price", *FOUR))
    data = build(table, "++data.columns.house=ignore")
    val, (mean, std) = data.split(train=False), data.scale
    with torch.no_grad():
        outputs = run.update.model.eval()(torch.from_numpy(val.features)).squeeze(1).double() * std + mean
    measured = run.folder.read_result()["metrics"]
    assert measured["val_loss"] == pytest.approx(mean_squared_error(val.targets, outputs), rel=1e-5)
    assert measured["val_mae"] == pytest.approx(mean_absolute_error(val.targets, outputs), rel=1e-5)
    assert measured["val_r2"] == pytest.approx(r2_score(val.targets, outputs), rel=1e-5)
    assert measured["val_r2"] > 0.5
    trained = manyheads.load(run.folder.path, which="last")
    again = trained.predict([dict(zip(NAMES, row, strict=True)) for row in houses()])
    assert np.allclose(np.array(again)[data.masks[1]], outputs, rtol=1e-5)
    description = json.loads(run.folder.description.read_text())
    assert encoding_of(description["table"]) == data.fitted


def test_a_trained_model_predicts_a_new_file(tmp_path, table, command):
    names = ("data=table", f"data.root={table}", "data.target=city", "data.missing_target=skip")
    run = train(tmp_path / "run", small(*names, *FOUR))
    rows = houses(12, seed=5)
    rows[3][1] = ""
    save(
        tmp_path / "new.csv",
        [[row[1], row[0], *row[2:3], *row[4:]] for row in rows],
        ["area", "house", "rooms", *NAMES[4:]],
    )
    done = command("predict", run.folder.path, "new.csv", "--out", "found.csv")
    assert (done.code, "found.csv: 12 rows" in done.out) == (0, True)
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert lines[0] == "row,class,probability,class_2,probability_2,class_3,probability_3,class_4,probability_4"
    assert (len(lines), lines[1].split(",")[1] in ("Bern", "Oslo", "Rome", "Lima")) == (13, True)
    save(tmp_path / "new.csv", rows)
    assert command("predict", run.folder.path, "new.csv").code == 0
    assert (tmp_path / "predictions.csv").read_text().splitlines()[0].endswith(",probability_4,city")
    save(tmp_path / "bad.csv", [row[1:] for row in rows], ["size", *NAMES[2:]])
    assert (
        "the column area, which the model needs, is missing in bad.csv"
        in command("predict", run.folder.path, "bad.csv").err
    )


MISTAKEN = {
    "missing.csv": (None, "missing.csv does not exist. Set it to a file, a list of files, or a folder."),
    "words.csv": (
        (["H1", "many", "3", "Bern", "yes", "2020-01-15", "1"],),
        "words.csv is not (1 such value). Correct it.",
    ),
    "short.csv": ((["1", "2"],), "row 1 has 2 values for"),
    "without.csv": ((), "has no rows"),
}


@pytest.fixture(scope="module")
def priced(tmp_path_factory):
    """A run that predicts a price, and the files that it was trained on, and new ones."""
    path = tmp_path_factory.mktemp("priced")
    save(path / "old.csv", houses())
    save(path / "new.csv", houses(25, seed=5))
    return train(path / "run", small("data=table", f"data.root={path / 'old.csv'}", "data.target=price", *FOUR))


@pytest.mark.parametrize("name", MISTAKEN)
def test_a_prediction_names_no_keys_of_training(tmp_path, priced, name):
    rows, words = MISTAKEN[name]
    if rows is not None:
        save(tmp_path / name, [*rows])
    trained = manyheads.load(priced.folder.path, which="last")
    with pytest.raises(ConfigurationError, match=re.escape(words)) as error:
        trained.predict(tmp_path / name)
    assert "data." not in str(error.value)


def test_a_column_that_a_prediction_lacks_is_named(tmp_path, priced):
    trained = manyheads.load(priced.folder.path, which="last")
    with pytest.raises(ConfigurationError, match="which the model needs, is missing in the given rows"):
        trained.predict([{"house": 1, "area": 2}])


def test_an_evaluation_of_new_files_measures_all_rows(tmp_path, priced):
    """Encoded as in training; that of the run's own files the rows that validated."""
    weights = f"checkpoint.load={priced.folder.path / 'checkpoints' / 'last.pt'}"
    root = priced.folder.path.parent
    for file, count in (("new.csv", 25), ("old.csv", priced.trainer.evaluation.loader.samples)):
        given = (f"data.root={root / file}", "data.target=price", *FOUR, "data.encoding=null")
        run = attempt(tmp_path / file, small("data=table", *given, weights, "trainer.evaluate_only=true"))
        run.evaluate()
        assert run.trainer.evaluation.loader.samples == count
        assert run.folder.read_result()["metrics"]["val_samples"] == count
        if file == "old.csv":
            assert run.folder.read_result()["metrics"]["val_loss"] == pytest.approx(
                priced.folder.read_result()["metrics"]["val_loss"], rel=1e-6
            )


def test_an_evaluation_names_missing_and_unseen_values(tmp_path, priced):
    rows = [[*row[:3], "Faro", *row[4:]] for row in houses(18, seed=5)]
    given = (f"data.root={save(tmp_path / 'new.csv', rows)}", "data.target=price", *FOUR, "data.val_fraction=1")
    facts = build_data(
        typed(
            "data=table",
            *given,
            f"data.encoding={priced.folder.description}",
            "trainer.evaluate_only=true",
            f"checkpoint.load={priced.folder.path / 'checkpoints' / 'last.pt'}",
        ).data
    ).facts
    assert facts["missing"] == "area (11.1%): filled by the training rows' mean"
    assert facts["unseen"] == "city: Faro (18 rows): seen less than twice in training"


def test_all_rows_are_for_evaluations(tmp_path, table):
    given = ("data=table", f"data.root={table}", "data.target=price", "data.val_fraction=1")
    with pytest.raises(ConfigurationError, match="data.val_fraction=1 leaves no sample to train on"):
        small(*given)


def test_a_run_is_resumed_on_the_same_rows_alone(tmp_path, table):
    names = ("data=table", f"data.root={table}", "data.target=price", *FOUR)
    whole = train(tmp_path / "whole", small(*names)).folder.read_result()["weights_sha256"]
    train(tmp_path / "run", small(*names, "trainer.stop_after=20"))
    again = ("checkpoint.resume=" + str(tmp_path / "run" / "checkpoints" / "last.pt"),)
    assert train(tmp_path / "again", small(*names, *again)).folder.read_result()["weights_sha256"] == whole
    save(table, houses(seed=3))
    with pytest.raises(ConfigurationError, match=r"data\.root: its rows encode the numbers, target otherwise"):
        train(tmp_path / "other", small(*names, *again))
    given = f"data.encoding={tmp_path / 'run' / 'model.json'}"
    assert train(tmp_path / "other", small(*names, *again, given)).folder.read_result()


@pytest.mark.parametrize(
    "given",
    [
        ("parallel=ddp", "data.num_workers=1"),
        *map(tail, [("parallel=fsdp",), ("parallel=zero1",), ("parallel=dp",), ("trainer.grad_accumulation=2",)]),
    ],
    ids=" ".join,
)
def test_ranks_and_loader_processes_change_nothing(tmp_path, table, given):
    names = ("data=table", f"data.root={table}", "data.target=price", "data.batch_size=16", *FOUR)
    alone = train(tmp_path / "alone", small(*names)).folder.read_result()["metrics"]
    other = launch(prepare(freeze(tmp_path / "other", *names, *given)))["metrics"]
    for column in ("val_loss", "val_mae", "val_r2"):
        assert alone[column] == pytest.approx(other[column], rel=1e-4)
