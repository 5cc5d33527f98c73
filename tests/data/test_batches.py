"""From a request to a batch."""

import numpy as np
import pytest
import torch

from manyheads.runner.data.rank.batches import BatchDataset
from manyheads.runner.data.rank.sampler import BatchIndices
from manyheads.runner.errors import ConfigurationError
from tests.zoo import Noise


class Odd(Noise):
    """Some samples can't be read, each in another way."""

    def __getitem__(self, index: int):
        if index in (2, 3):
            raise OSError("disk on fire")
        if index == 5:
            raise KeyError("a fault in the user's code")
        return super().__getitem__(index)


def batches(*, replace: bool = True, on_corrupt: str = "skip") -> BatchDataset:
    return BatchDataset(Odd(split="train", size=8), seed=1, on_corrupt=on_corrupt, replace_corrupt=replace)


def request(*indices: int, count: int | None = None) -> BatchIndices:
    return BatchIndices(0, np.array(indices, dtype=np.int64), len(indices) if count is None else count, 1.0)


def test_samples_are_stacked_in_order():
    batch = batches()[request(1, 0, 4)]
    images = Odd(split="train", size=8).images
    assert torch.equal(batch.content[0], images[[1, 0, 4]])
    assert batch.content[1].tolist() == [Odd(split="train", size=8).targets[i] for i in (1, 0, 4)]
    assert (batch.count, batch.weight, batch.corrupt) == (3, 1.0, [])


def test_the_next_readable_sample_replaces_over_the_end_too():
    images = Odd(split="train", size=8).images
    batch = batches()[request(2, 3)]
    assert torch.equal(batch.content[0], images[[4, 4]])
    assert [each.path for each in batch.corrupt] == ["sample 2", "sample 3"]


def test_a_share_that_counts_for_nothing_still_counts_for_nothing():
    assert batches()[request(2, count=0)].count == 0


def test_leaving_out_may_leave_nothing():
    batch = batches(replace=False)[request(2, 3)]
    assert (batch.count, batch.content, len(batch.corrupt)) == (0, None, 2)
    assert batches(replace=False)[request(1, 2)].count == 1
    assert batches(replace=False)[request()].count == 0


def test_an_error_is_returned_so_that_a_loader_process_can_pass_it_on():
    error = batches(on_corrupt="error")[request(2)]
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith("sample 2 cannot be read (disk on fire). Repair or remove it")


def test_faults_of_the_data_set_s_code_are_not_hidden():
    with pytest.raises(KeyError, match="user's code"):
        batches().fetch(request(5))


def test_a_rank_that_must_keep_step_gets_a_sample_that_does_not_count():
    filled = BatchDataset(Odd(split="val", size=8), seed=1, on_corrupt="skip", replace_corrupt=False, fill=True)
    batch = filled[request(2, 3)]
    assert (batch.count, len(batch.content[1]), len(batch.corrupt)) == (0, 1, 2)


class Named(Noise):
    """Samples that torch's own collation could not put together."""

    def __getitem__(self, index: int):
        return {"name": f"sample {index}", "length": index}

    @staticmethod
    def collate_fn(samples):
        return {"names": [each["name"] for each in samples], "lengths": torch.tensor([s["length"] for s in samples])}


def test_the_data_set_s_own_collation_counts():
    own = BatchDataset(Named(split="train", size=8), seed=1, on_corrupt="error", replace_corrupt=True)
    content = own[request(3, 1)].content
    assert content["names"] == ["sample 3", "sample 1"]
    assert content["lengths"].tolist() == [3, 1]
