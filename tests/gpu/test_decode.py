"""data.decode=cuda, and batches that come on a stream of their own."""

import csv
from pathlib import Path

import pytest
import torch

from runner.data.imagefolder import ImageFolder
from tests.data.conftest import SIDE, loader, save_photos
from tests.data.test_decoder import apart, pack, paths, plain  # noqa: F401  # paths is a fixture
from tests.data.test_imagefolder import truncate

SOME = ("data.batch_size=5", "data.num_workers=2", "checkpoint.every=0")


@pytest.fixture
def root(tmp_path) -> Path:
    return save_photos(tmp_path / "photos", train=20, val=5)


def options(root: Path, decode: str) -> tuple[str, ...]:
    return ("data=imagefolder", f"data.root={root}", f"data.decode={decode}", f"data.image_size={SIDE}", *SOME)


def losses(folder) -> list[float]:
    with open(folder.steps, newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.gpu("data.decode=cuda: as decoded by the CPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_run(train, root, precision):
    by_cpu, by_gpu = (train(*options(root, by), f"precision={precision}", name=by) for by in ("cpu", "cuda"))
    assert losses(by_gpu) == pytest.approx(losses(by_cpu), rel=0.02)


@pytest.mark.gpu("data.decode=cuda: a damaged file is left out")
def test_damaged(train, root):
    truncate(root / "val" / "coffee" / "2.jpg")
    result = train(*options(root, "cuda"), "data.on_corrupt=skip", "trainer.max_steps=12").read_result()
    assert result["corrupt_samples"] == 1
    assert result["metrics"]["val_samples"] == 14


@pytest.mark.gpu("nvJPEG's pixels are libjpeg-turbo's, nearly")
@pytest.mark.parametrize("is_training", [True, False])
def test_pixels(paths, is_training):  # noqa: F811
    from runner.data.decoder import Decoder
    from runner.data.encoded_photos import EncodedPhotos

    dataset = EncodedPhotos(paths, [0] * len(paths), image_size=224, train=is_training)
    decode = Decoder(torch.device("cuda", 0))
    for key in range(0, 100, 10):
        images = decode(pack(dataset, key=key))
        assert images is not None
        assert images.is_cuda
        # nvJPEG repeats the colours of neighbouring pixels where libjpeg-turbo interpolates them.
        assert apart(images.cpu(), plain(dataset.on_cpu(), key=key)).max() <= 4


@pytest.mark.gpu("batches come ahead of the step: nobody reads or overwrites them too early")
@pytest.mark.parametrize("decode", ["cpu", "cuda"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_streams(root, decode, num_workers):
    """With the GPU kept busy, so that the host is many batches ahead of it."""
    device = torch.device("cuda", 0)
    data = ImageFolder(root=str(root), image_size=224, decode=decode).split(train=True)
    made = loader(data, batch_size=6, num_workers=num_workers, dtype=torch.float32, device=device)
    expected = []
    for batch in made.epoch(0):
        expected.append(batch.inputs.double().sum())
        torch.cuda.synchronize(device)
    busy = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        found = []
        for batch in made.epoch(0):
            for _ in range(20):
                busy = torch.tanh(busy @ busy)
            found.append(batch.inputs.double().sum())
            del batch
        assert torch.stack(found).tolist() == torch.stack(expected).tolist()
