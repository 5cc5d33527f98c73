"""data=parquet: files as the hub has them, row by row, and columns that are not what they are taken for."""

import json
import re

import numpy as np
import pytest

from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.errors import ConfigurationError
from tests.data.conftest import save_photos
from tests.in_process import attempt, build_dataset, small, train, typed

pytestmark = pytest.mark.needs("pyarrow")


@pytest.fixture(autouse=True, scope="module")
def _imported():
    global pyarrow
    import pyarrow
    import pyarrow.parquet


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return save_photos(tmp_path_factory.mktemp("photos"))


def write(path, table, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(table), path, **options)


def rows(photos, split: str, names=("cat", "coffee", "person")):
    files = [(path, number) for number, name in enumerate(names) for path in sorted((photos / split / name).iterdir())]
    images = [{"bytes": path.read_bytes(), "path": path.name} for path, _ in files]
    return {"id": list(range(len(files))), "image": images, "label": [number for _, number in files]}


@pytest.fixture
def files(photos, tmp_path):
    """The photos in files of the hub: training rows in two files, of groups of four rows each."""
    root = tmp_path / "data"
    table = rows(photos, "train")
    names = ["cat", "coffee", "person"]
    about = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    for number, part in enumerate((slice(0, 9), slice(9, None))):
        found = pyarrow.table({name: values[part] for name, values in table.items()})
        found = found.replace_schema_metadata({"huggingface": json.dumps(about)})
        root.mkdir(exist_ok=True)
        pyarrow.parquet.write_table(found, root / f"train-{number:05d}-of-00002.parquet", row_group_size=4)
    write(root / "validation-00000-of-00001.parquet", rows(photos, "val"))
    return root


def words(root, *more: str) -> tuple[str, ...]:
    return ("data=parquet", f"data.root={root}", "data.image_size=24", "data.num_workers=0", "data.batch_size=4", *more)


def test_training_on_them_ends_with_the_bits_of_the_folder(photos, files, tmp_path):
    epochs = "trainer.epochs=1"
    folder = [each.replace("=parquet", "=imagefolder") for each in words(photos, epochs)]
    one = train(tmp_path / "one", small(*folder))
    other = train(tmp_path / "other", small(*words(files, epochs)))
    assert other.folder.read_result()["weights_sha256"] == one.folder.read_result()["weights_sha256"]
    assert other.trainer.train.batches.dataset.classes == ["cat", "coffee", "person"]


def test_groups_of_rows_are_kept_as_far_as_the_cache_reaches(photos, files, monkeypatch):
    samples = build_dataset(build_data(typed(*words(files, "data.cache_mb=1")).data), train=True)
    read = []
    found = samples.paths
    for each in found._files:
        before = each.read_row_group

        def counted(group, *args, before=before, **options):
            read.append(group)
            return before(group, *args, **options)

        monkeypatch.setattr(each, "read_row_group", counted)
    expected = [each["bytes"] for each in rows(photos, "train")["image"]]
    assert [found[number] for number in (14, 0, 3, 8, 13, 1)] == [expected[number] for number in (14, 0, 3, 8, 13, 1)]
    assert len(read) == 3  # groups of both files; those of 13 and 1 were kept
    found.cache_bytes = 1
    found._kept.clear()
    found._kept_bytes = 0
    assert [found[number] for number in (0, 14, 0)] == [expected[number] for number in (0, 14, 0)]
    assert len(found._kept) == 1


def test_a_group_is_requested_again_for_a_batch_after_those_that_are_fetched_ahead(files, monkeypatch):
    """The cache may have removed it since."""
    from manyheads.runner.data import parquet_rows
    from manyheads.runner.data.shards.folders import LocalFolder
    from manyheads.runner.data.shards.index import PARQUET

    requested = []
    monkeypatch.setattr(parquet_rows, "fetch_ahead", lambda source, file, group, column: requested.append(group))
    folder, columns = LocalFolder(files, PARQUET), {"input": "auto", "label": "auto"}
    rows = parquet_rows.ParquetRows(folder, folder.names[:1], columns, cache_bytes=1, ahead=2)
    for batch in ([0, 3], [4, 0], [8], [8], [1]):
        rows.read_ahead.fetch(np.array(batch))
    assert requested == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("data.label_column=image",),
            "data.label_column=image: {root}/train-00000-of-00002.parquet has no such column",
        ),
        (
            ("data.input_column=label",),
            "no such column of images ({bytes, path}, or binary) or text. Its columns are id",
        ),
        (("data.input_column=picture",), "data.input_column=picture"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(files, tmp_path, overrides, message):
    with pytest.raises(ConfigurationError, match=re.escape(message.replace("{root}", str(files)))):
        attempt(tmp_path / "run", small(*words(files, *overrides)))


def test_files_that_do_not_fit_together_or_are_cut_off(photos, files, tmp_path):
    write(files / "train-x.parquet", {"image": [b"x"], "label": ["cat"]})
    with pytest.raises(ConfigurationError, match=r"train-x.parquet has other columns than train-00000-of"):
        attempt(tmp_path / "run", small(*words(files)))
    content = (files / "train-x.parquet").read_bytes()
    (files / "train-x.parquet").write_bytes(content[:-5])
    with pytest.raises(ConfigurationError, match=r"train-x.parquet is not a complete Parquet file \("):
        attempt(tmp_path / "other", small(*words(files)))


def test_what_cannot_be_decoded_is_named_by_file_and_row(photos, tmp_path):
    table = rows(photos, "train")
    table["image"][7]["bytes"] = b"no picture"
    write(tmp_path / "data" / "train.parquet", table, row_group_size=3)
    write(tmp_path / "data" / "val.parquet", rows(photos, "val"))
    run = attempt(tmp_path / "run", small(*words(tmp_path / "data", "data.drop_last=false")))
    with pytest.raises(ConfigurationError, match=r"data/train.parquet: row 7 cannot be read"):
        run.train(seed=1, state=None)


def test_rows_that_name_files_read_those_of_the_folder_alone(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    table = rows(photos, "train")
    paths = ["inside.jpg", str(photos / "train" / "cat" / "0.jpg"), "../outside.jpg"]
    table = {"image": [{"bytes": None, "path": each} for each in paths], "label": [0, 1, 1]}
    write(tmp_path / "data" / "train.parquet", table)
    write(tmp_path / "data" / "val.parquet", rows(photos, "val"))
    for place in (tmp_path / "data" / "inside.jpg", tmp_path / "outside.jpg"):
        place.write_bytes((photos / "train" / "cat" / "0.jpg").read_bytes())
    samples = build_dataset(build_data(typed(*words(tmp_path / "data")).data), train=True)
    assert samples[0][0].shape == (3, 24, 24)
    for number in (1, 2):
        with pytest.raises(Exception, match="points outside this folder"):
            samples[number]


def test_text_is_blocks_of_tokens(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for split in ("train", "val"):
        write(tmp_path / "data" / f"{split}.parquet", {"id": [1, 2], "text": [f"{split} text", "another"]})
    option = typed("data=parquet", f"data.root={tmp_path / 'data'}", "data.block_size=6").data
    data = build_data(option)
    tokens, labels = build_dataset(data, train=True)[1]
    assert bytes(tokens.tolist()) + bytes(labels.tolist()[-1:]) == b"text\0an"[:0] + b"train text\0another\0"[6:13]
    assert data.num_classes == 256
