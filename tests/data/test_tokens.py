"""data=tokens: files as nanoGPT, llm.c and Megatron write them, and files that are not what they say."""

import struct

import numpy as np
import pytest
import torch

from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.shards.folders import LocalFolder
from manyheads.runner.data.shards.index import TOKENS
from manyheads.runner.data.token_files import write
from manyheads.runner.data.tokens import opened
from manyheads.runner.errors import ConfigurationError
from tests.in_process import build_dataset, small, train, typed

DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 10, 11, 12, 13, 0], [1, 2, 3, 4, 0]]
ROW = np.array([token for each in DOCUMENTS for token in each], np.uint16)
ENDS = np.cumsum([len(each) for each in DOCUMENTS]).tolist()


def nano(path) -> None:
    path.write_bytes(ROW.tobytes())


def llm_c(path) -> None:
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(ROW)
    path.write_bytes(header.tobytes() + ROW.tobytes())


def llama(path) -> None:
    header = np.zeros(256, np.int32)
    header[:3] = 20240801, 7, len(ROW)
    path.write_bytes(header.tobytes() + ROW.astype(np.uint32).tobytes())


def megatron(path, dtype=np.uint16, code: int = 8) -> None:
    """By the description of the format, apart from the code that is tested."""
    path.write_bytes(ROW.astype(dtype).tobytes())
    lengths = [len(each) for each in DOCUMENTS]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1)
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    places = np.array([0, *np.cumsum(lengths)[:-1]]) * np.dtype(dtype).itemsize
    path.with_suffix(".idx").write_bytes(
        index + places.astype(np.int64).tobytes() + np.arange(5, dtype=np.int64).tobytes()
    )


def megatron_32(path) -> None:
    megatron(path, np.int32, 4)


FORMS = [nano, llm_c, llama, megatron, megatron_32]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()


def blocks(root, *more: str, train: bool = True):
    words = (f"data.root={root}", "data.vocab_size=16", "data.block_size=4", *more)
    return build_dataset(build_data(typed("data=tokens", *words).data), train=train)


@pytest.mark.parametrize("form", FORMS)
def test_each_format_has_the_same_blocks(tmp_path, form):
    for split in ("train", "val"):
        form(tmp_path / "data" / f"fineweb_{split}_000000.bin")
    found = blocks(tmp_path / "data")
    assert len(found) == 4
    for index in range(4):
        tokens, labels = found[index]
        assert tokens.tolist() == ROW[4 * index : 4 * index + 4].tolist()
        assert labels.tolist() == ROW[4 * index + 1 : 4 * index + 5].tolist()


def test_several_files_are_one_row(tmp_path):
    nano(tmp_path / "data" / "train_0.bin")
    llama(tmp_path / "data" / "train_1.bin")
    megatron_32(tmp_path / "data" / "train_2.bin")
    nano(tmp_path / "data" / "val.bin")
    found = blocks(tmp_path / "data")
    row = np.tile(ROW, 3)
    assert len(found) == (len(row) - 1) // 4
    assert [found[i][0].tolist() + found[i][1].tolist()[-1:] for i in range(len(found))] == [
        row[4 * i : 4 * i + 5].tolist() for i in range(len(found))
    ]
    assert len(blocks(tmp_path / "data", "data.max_tokens=21")) == 5


@pytest.mark.parametrize(("form", "end"), [(megatron, "null"), (nano, "0")])
def test_separate_documents_do_not_see_each_other(tmp_path, form, end):
    """In each block, positions, labels and the mask are those of the documents that it holds, taken alone."""
    for split in ("train", "val"):
        form(tmp_path / "data" / f"{split}.bin")
    found = blocks(tmp_path / "data", "data.documents=separate", f"data.end_token={end}", "data.block_size=8")
    assert len(found) == 2
    document = np.searchsorted(ENDS, np.arange(len(ROW)), "right")
    for index in range(2):
        sample, places = found[index], np.arange(8 * index, 8 * index + 8)
        first = [max(8 * index, 0 if document[each] == 0 else ENDS[document[each] - 1]) for each in places]
        assert sample["input_ids"].tolist() == ROW[places].tolist()
        assert sample["position_ids"].tolist() == (places - first).tolist()
        labels = [int(ROW[each + 1]) if document[each + 1] == document[each] else -100 for each in places]
        assert sample["labels"].tolist() == labels
        sees = (document[places][:, None] == document[places][None]) & (places[:, None] >= places[None])
        assert torch.equal(sample["attention_mask"], torch.from_numpy(sees)[None])


def read(folder):
    """The tokens of train.bin, as data=tokens opens it."""
    [found] = opened(LocalFolder(folder, TOKENS), ["train.bin"])
    return found


def test_what_is_written_is_read(tmp_path):
    for tokens in (ROW, ROW.astype(np.uint8), ROW.astype(np.int32)):
        write(tmp_path / "data", "train", tokens, ENDS)
        found = read(tmp_path / "data")
        assert np.array_equal(found.tokens(), ROW)
        assert found.ends.tolist() == ENDS
    megatron_32(tmp_path / "by_hand.bin")
    for suffix in (".bin", ".idx"):
        assert (tmp_path / "data" / f"train{suffix}").read_bytes() == (tmp_path / f"by_hand{suffix}").read_bytes()


def change(path, at: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    path.write_bytes(content)


WRONG = {
    "cut off": (
        llm_c,
        lambda path: path.write_bytes(path.read_bytes()[:-2]),
        "train.bin has 1,056 bytes, but its header",
    ),
    "odd": (nano, lambda path: path.write_bytes(path.read_bytes()[:-1]), "has an odd number of bytes, 33"),
    "another file's index": (
        megatron,
        lambda path: change(path.with_suffix(".idx"), 34, b"\3\0\0\0\3"),
        "belongs to another file",
    ),
    "a longer file": (
        megatron,
        lambda path: path.write_bytes(path.read_bytes() * 2),
        "train.bin has 68 bytes, but .*idx says",
    ),
    "no index": (megatron, lambda path: path.with_suffix(".idx").write_bytes(b"x" * 99), "is not an index of Megatron"),
    "half an index": (
        megatron,
        lambda path: path.with_suffix(".idx").write_bytes(path.with_suffix(".idx").read_bytes()[:50]),
        "cut off",
    ),
    "another type": (
        megatron,
        lambda path: change(path.with_suffix(".idx"), 17, b"\6"),
        "version 1 and type 6 are not known",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_not_what_it_says_is_refused_before_anything_starts(tmp_path, wrong):
    form, spoil, message = WRONG[wrong]
    nano(tmp_path / "data" / "val.bin")
    form(tmp_path / "data" / "train.bin")
    spoil(tmp_path / "data" / "train.bin")
    with pytest.raises(ConfigurationError, match=message):
        typed("data=tokens", f"data.root={tmp_path / 'data'}", "data.vocab_size=16")


def test_a_token_beyond_the_vocabulary_is_named_with_its_place(tmp_path):
    for split in ("train", "val"):
        nano(tmp_path / "data" / f"{split}.bin")
    message = "data.vocab_size=13: .*train.bin has the token 13 at position 10. Set it to one more than"
    with pytest.raises(ConfigurationError, match=message):
        blocks(tmp_path / "data", "data.vocab_size=13")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("data.documents=separate",),
            "data.documents=separate: .*train.bin does not say where documents end. Set data.end",
        ),
        (("data.train_shards=x*.bin",), "data.train_shards=x*.bin matches none of 2 shards"),
        (("data.train_shards='train_{0..3}.bin'",), "the shard train_0.bin is missing"),
        (("data.root=/nowhere",), "data.root=/nowhere: no file below it ends in .bin"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, overrides, message):
    for split in ("train", "val"):
        nano(tmp_path / "data" / f"{split}.bin")
    with pytest.raises(
        ConfigurationError, match=message.replace("*.bin m", r"\*.bin m") if "x*" in message else message
    ):
        typed("data=tokens", f"data.root={tmp_path / 'data'}", "data.vocab_size=16", *overrides)


def test_training_on_packed_text_ends_with_the_bits_of_the_text(tmp_path):
    from manyheads.runner.commands.pack import answer, pack_data

    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"text number {number} of thirty, about nothing. " * 9)
    keep = answer.Settings("tokens", 10**9, None, None, 90)
    found = pack_data.pack(str(tmp_path / "texts"), ["data.block_size=16"], str(tmp_path / "packed"), keep)
    assert found.kind == "tokens"
    assert "data.vocab_size=256" in found.train
    documents = read(tmp_path / "packed").ends
    assert 20 < len(documents) < 30  # the others validate and test
    model = ("task=language_model", "model=gpt", "model.width=24", "data.batch_size=8", "trainer.epochs=1")
    same = (*model, "data.block_size=16", "data.num_workers=0")
    one = train(tmp_path / "one", small("data=text", f"data.root={tmp_path / 'texts'}", *same))
    words = ("data=tokens", f"data.root={tmp_path / 'packed'}", "data.vocab_size=256")
    other = train(tmp_path / "other", small(*words, *same))
    assert other.folder.read_result()["weights_sha256"] == one.folder.read_result()["weights_sha256"]
