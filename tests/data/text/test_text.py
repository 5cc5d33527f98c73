"""Texts as blocks of tokens: which files, which split, made once."""

import numpy as np
import pytest
import torch

from manyheads.runner.data import tokenizing as module
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.text import split_of, standard_library
from manyheads.runner.errors import ConfigurationError
from manyheads.runner.run import seal
from tests.in_process import build_dataset, opened, small, typed


class Words:
    """A tokenizer of one's own: each word is a token, by its first letter."""

    vocab_size = 27
    eos_token_id = 0

    def encode(self, text: str) -> list[int]:
        return [1 + "abcdefghijklmnopqrstuvwxyz".index(word[0]) for word in text.split()]


class Strange(Words):
    vocab_size = 3


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Twenty texts of five words."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "texts").mkdir()
    for number in range(20):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"a b c d {'efgh'[number % 4]} ")
    return tmp_path / "texts"


def dataset(*overrides: str, train: bool = True):
    return build_dataset(build_data(typed("data=text", *overrides).data), train=train)


def section(root, *overrides: str):
    return (f"data.root={root}", "data.block_size=4", *overrides)


def test_labels_are_the_tokens_one_further_on(texts):
    (texts / "one.md").write_bytes(bytes(range(1, 51)))
    found = dataset(*section(texts / "one.md", "data.val_fraction=0.2", "data.test_fraction=0.2"))
    assert len(found) == 7  # of 30 bytes
    tokens, labels = found.batch(np.array([0, 6]), None)
    assert tokens.tolist() == [[1, 2, 3, 4], [25, 26, 27, 28]]
    assert labels.tolist() == [[2, 3, 4, 5], [26, 27, 28, 29]]
    assert tokens.dtype == torch.int64
    validation = dataset(*section(texts / "one.md", "data.val_fraction=0.2", "data.test_fraction=0.2"), train=False)
    assert validation[0][0].tolist() == [31, 32, 33, 34]


def test_files_are_in_one_split_each_by_their_names(texts):
    options = {"val_fraction": 0.3, "test_fraction": 0.1}
    files = {path.name: path for path in texts.iterdir()}
    splits = [set(split_of(files, split, **options)) for split in ("train", "val", "test")]
    assert set.union(*splits) == set(files)
    assert sum(map(len, splits)) == 20
    assert all(splits)
    fewer = {name: files[name] for name in sorted(files)[::2]}
    assert set(split_of(fewer, "val", **options)) == splits[1] & set(fewer)


def test_folders_of_the_splits_names_are_the_splits(tmp_path):
    files = dict.fromkeys(("train/a.txt", "train/b.txt", "val/a.txt", "test/c.txt"), tmp_path)
    found = [list(split_of(files, s, val_fraction=0.1, test_fraction=0.1)) for s in ("train", "val", "test")]
    assert found == [["train/a.txt", "train/b.txt"], ["val/a.txt"], ["test/c.txt"]]


def test_tokens_are_made_once_and_mapped_into_memory(texts, monkeypatch):
    first = dataset(*section(texts))
    assert isinstance(first.tokens, np.memmap)
    made = module._made
    monkeypatch.setattr(module, "_made", lambda *_: pytest.fail("made again"))
    again = dataset(*section(texts))
    assert again.digest == first.digest
    assert np.array_equal(again.tokens, first.tokens)
    monkeypatch.setattr(module, "_made", made)
    for path in texts.iterdir():
        path.write_text(path.read_text().upper())
    assert dataset(*section(texts)).digest != first.digest


def test_without_a_cache_they_are_in_memory(texts, monkeypatch):
    kept = dataset(*section(texts))
    monkeypatch.setattr(module, "cache_folder", lambda _: None)
    found = dataset(*section(texts))
    assert found.digest == kept.digest
    assert not isinstance(found.tokens, np.memmap)


def test_a_tokenizer_of_ones_own(texts):
    data = build_data(typed("data=text", *section(texts, f"+data.tokenizer._target_={__name__}.Words")).data)
    assert data.num_classes == 27
    tokens, labels = build_dataset(data, train=True)[0]
    assert tokens.tolist() == [1, 2, 3, 4]
    assert labels[-1] >= 5
    assert build_dataset(data, train=True)[1][0][1] == 0  # between two texts


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.pattern=*.md"], r"no file there matches data.pattern=\*.md"),
        (["data.pattern=/etc/*"], r"data.pattern=/etc/\*: Non-relative patterns"),
        (["data.val_fraction=0.6", "data.test_fraction=0.4"], "leave nothing to train on"),
        (["data.block_size=5000"], "the train split has .* tokens"),
        ([f"+data.tokenizer._target_={__name__}.Strange"], "its vocab_size is 3"),
        (["+data.tokenizer._target_=fractions.Fraction"], "neither vocab_size nor get_vocab_size"),
    ],
)
def test_mistakes_are_told(texts, overrides, message):
    with pytest.raises(ConfigurationError, match=message):
        dataset(*[each for each in section(texts) if each.split("=")[0] != overrides[0].split("=")[0]], *overrides)


def test_a_text_that_is_no_utf_8_is_named(texts):
    for path in texts.iterdir():
        path.write_bytes(b"\xff\xfe")
    assert len(dataset(*section(texts)))
    with pytest.raises(ConfigurationError, match=r"\d\.txt is not UTF-8 .* at byte 0"):
        dataset(*section(texts, f"+data.tokenizer._target_={__name__}.Words"))


def test_the_standard_library_has_no_tests_and_nothing_of_the_machine():
    files = standard_library()
    assert "asyncio/tasks.py" in files
    assert len(files) > 300
    assert not [name for name in files if "test" in name.split("/") or "sysconfigdata" in name]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_contiguous(tmp_path, num_workers):
    """The commonest loss of a language model has ``labels.view(-1)``."""
    overrides = ("data=stdlib_text", "data.block_size=8", "data.max_tokens=2000", "model=gpt", "model.width=8")
    sizes = small(*overrides, "task=language_model", "model.heads=1", f"data.num_workers={num_workers}")
    with opened(tmp_path, sizes) as trainer:
        batch = next(trainer.train.epoch(0))
        tokens, labels = batch.content
        assert torch.equal(tokens[:, 1:].flatten(), labels[:, :-1].flatten())
        assert batch.inputs.view(-1).shape == labels.view(-1).shape == (64,)


@pytest.mark.parametrize("tokenizer", [(), (f"+data.tokenizer._target_={__name__}.Words",)])
def test_a_link_out_of_a_sent_folder_is_not_read(texts, tmp_path, monkeypatch, tokenizer):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "secret").write_text("z z z z")
    (texts / "x.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigurationError, match=r"x\.txt points outside this folder"):
        [dataset(*section(texts, *tokenizer), train=train) for train in (True, False)]
    seal.trust(texts, None)
    [dataset(*section(texts, *tokenizer), train=train) for train in (True, False)]


def test_a_pattern_does_not_leave_a_sent_folder(texts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "secret.txt").write_text("z z z z")
    with pytest.raises(ConfigurationError, match=r"secret\.txt points outside this folder"):
        [dataset(*section(texts, "data.pattern='../*.txt'"), train=train) for train in (True, False)]


def test_files_that_are_not_read_are_counted_and_named(texts, capsys):
    typed("data=text", *section(texts))
    assert capsys.readouterr().err == ""
    for name in ("README.md", "inner/notes.rst", ".git/config"):
        (texts / name).parent.mkdir(exist_ok=True)
        (texts / name).write_text("a")
    typed("data=text", *section(texts))
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        f"warning: skipped 2 files (README.md, inner/notes.rst) below {texts}, which data.pattern=**/*.txt does not"
    )


def test_a_file_beside_the_folders_of_splits_is_named_since_they_are_no_splits_then(texts, capsys):
    for split in ("train", "val"):
        (texts / split).mkdir()
        (texts / split / "a.txt").write_text("a b c d e")
    typed("data=text", *section(texts))
    said = " ".join(capsys.readouterr().err.split())
    assert said == (
        "warning: all files are divided by a hash of their names, not by the folders train/ and val/, because of "
        "20 files (0.txt, 1.txt, 10.txt, ...) beside them."
    )
