"""Batches that are copied on a stream of their own while the GPU is busy with the ones before them."""

import pytest
import torch

from manyheads.runner.data.imagefolder import ImageFolder
from tests.data.conftest import loader, save_photos
from tests.in_process import build_dataset


@pytest.mark.gpu("batches come ahead of the step: nobody reads or overwrites them too early")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_streams(tmp_path, num_workers):
    """With the GPU kept busy, so that the host is many batches ahead of it."""
    device = torch.device("cuda", 0)
    root = save_photos(tmp_path / "photos", train=20, val=5)
    data = build_dataset(ImageFolder(root=str(root), image_size=224), train=True)
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
