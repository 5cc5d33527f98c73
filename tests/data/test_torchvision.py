"""torchvision's small data sets, from tiny files in their own formats."""

import builtins
import hashlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from manyheads.runner.data.data_option import DataOption
from manyheads.runner.data.rank.build_data import build_data
from manyheads.runner.data.rank.torchvision import read
from manyheads.runner.data.torchvision import KNOWN
from manyheads.runner.errors import ConfigurationError
from tests.in_process import build_dataset, small, train, typed

COUNTS = {True: 20, False: 10}


def pixels(shape: tuple[int, ...], *, train: bool) -> np.ndarray:
    return np.random.RandomState(train).randint(0, 256, shape).astype(np.uint8)


def labels(*, train: bool) -> list[int]:
    return [i * 3 % 10 for i in range(COUNTS[train])]


def write_idx(root: Path, folder: str) -> None:
    """Yann LeCun's format: type and number of dimensions, the dimensions, the bytes."""
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for is_train, prefix in ((True, "train"), (False, "t10k")):
        images = pixels((COUNTS[is_train], 28, 28), train=is_train)
        header = struct.pack(">IIII", 0x803, *images.shape)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        targets = bytes(labels(train=is_train))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(targets)) + targets)


def write_cifar(root: Path, monkeypatch, *, kind: type) -> None:
    """Pickled dictionaries, as Alex Krizhevsky's; torchvision wants the checksums of the files that it knows."""
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    key = "fine_labels" if kind is datasets.CIFAR100 else "labels"

    def dump(name: str, content: dict) -> list[str]:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return [name, hashlib.md5(data).hexdigest()]

    def batches(names: list[str], *, is_train: bool) -> list[list[str]]:
        images = pixels((COUNTS[is_train], 3 * 32 * 32), train=is_train)
        targets, step = labels(train=is_train), COUNTS[is_train] // len(names)
        parts = [slice(at, at + step) for at in range(0, COUNTS[is_train], step)]
        return [dump(n, {"data": images[p], key: targets[p]}) for n, p in zip(names, parts, strict=True)]

    for is_train, attribute in ((True, "train_list"), (False, "test_list")):
        names = [name for name, _ in getattr(kind, attribute)]
        monkeypatch.setattr(kind, attribute, batches(names, is_train=is_train))
    names_key = kind.meta["key"]
    name, digest = dump(kind.meta["filename"], {names_key: [f"class {i}" for i in range(100)]})
    monkeypatch.setattr(kind, "meta", {"filename": name, "key": names_key, "md5": digest})


@pytest.fixture(params=KNOWN)
def name_and_root(request, tmp_path, monkeypatch) -> tuple[str, Path]:
    """An option and the folder that holds its files."""
    root = tmp_path / "data"
    if "cifar" in request.param:
        write_cifar(root, monkeypatch, kind=getattr(datasets, KNOWN[request.param].kind))
    else:
        write_idx(root, KNOWN[request.param].kind)
    return request.param, root


def section(name: str, root: Path, *overrides: str) -> DataOption:
    return typed(f"data={name}", f"data.root={root}", "data.download=false", *overrides).data


def test_images_and_classes_are_those_of_the_files(name_and_root):
    name, root = name_and_root
    data = build_data(section(name, root))
    assert data.num_classes == (100 if name == "cifar100" else 10)
    for is_train in (True, False):
        files = read(data.split(train=is_train))
        assert files.targets.tolist() == labels(train=is_train)
        assert files.augment == (data.augment if is_train else "none")
        shape = (3, 32, 32) if "cifar" in name else (1, 28, 28)
        expected = pixels((COUNTS[is_train], int(np.prod(shape))), train=is_train).reshape(-1, *shape)
        assert np.array_equal(files.images, expected)
        samples = build_dataset(data, train=is_train)
        assert len(samples) == COUNTS[is_train]
        images, _ = samples.batch(np.arange(3), np.zeros(3, np.uint64))
        assert images.shape == (3, 3, 32, 32)


def test_a_run_over_them(name_and_root, tmp_path):
    name, root = name_and_root
    options = (f"data={name}", f"data.root={root}", "data.download=false", "data.num_workers=0", "data.batch_size=8")
    result = train(tmp_path / "run", small(*options)).folder.read_result()
    assert (result["status"], result["steps"], result["metrics"]["val_samples"]) == ("completed", 4, 10)


def test_augmentation_is_chosen_by_the_option(name_and_root):
    name, root = name_and_root
    assert build_data(section(name, root)).augment == ("crop_flip" if "cifar" in name else "none")
    samples = build_dataset(build_data(section(name, root, "data.augment=crop_flip")), train=True)
    keys = np.arange(20, dtype=np.uint64) * np.uint64(2**33 + 18)
    plain = samples.batch(np.arange(20), np.zeros(20, np.uint64))[0]
    assert not torch.equal(samples.batch(np.arange(20), keys)[0], plain)


@pytest.mark.parametrize("name", KNOWN)
def test_missing_files_are_refused_by_the_parent_when_nothing_may_be_downloaded(name, tmp_path):
    message = rf"data={name}: {tmp_path}/{KNOWN[name].evidence} does not exist.*Copy the files.*set data\.root"
    with pytest.raises(ConfigurationError, match=message):
        section(name, tmp_path)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.timeout(20)
def test_a_failing_download_is_said_with_path_and_remedy(name, tmp_path, monkeypatch):
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    data = build_data(typed(f"data={name}", f"data.root={tmp_path}").data)
    with pytest.raises(
        ConfigurationError, match=rf"data={name}: {tmp_path}/\S+ .*could not be downloaded .*data=digits"
    ):
        build_dataset(data, train=True)


def test_damaged_files_are_refused(name_and_root):
    name, root = name_and_root
    path = root / KNOWN[name].evidence
    whole = path.read_bytes()
    for damage in (whole[:100], whole[:2], b"", b"nonsense" * 100):
        path.write_bytes(damage)
        with pytest.raises(ConfigurationError, match=rf"data={name}: {path} cannot be read \(.+\)\. .*data\.root"):
            build_dataset(build_data(section(name, root)), train=True)


def test_what_is_unpickled_is_what_was_checked(tmp_path, monkeypatch):
    """Somebody who may write to the folder replaces a file after each time that it is opened."""
    write_cifar(tmp_path, monkeypatch, kind=datasets.CIFAR10)
    path = tmp_path / KNOWN["cifar10"].evidence

    class Evil:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    def replacing(original):
        def call(file, *arguments, **options):
            found = original(file, *arguments, **options)
            if str(file) == str(path):
                path.unlink()
                (tmp_path / "new").write_bytes(evil)
                (tmp_path / "new").rename(path)
            return found

        return call

    evil, data = pickle.dumps(Evil()), build_data(section("cifar10", tmp_path))
    monkeypatch.setattr(builtins, "open", replacing(builtins.open))
    monkeypatch.setattr(os, "open", replacing(os.open))
    assert len(read(data.split(train=True)).targets) == COUNTS[True]
    assert not (tmp_path / "ran").exists()
