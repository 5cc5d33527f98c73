"""Samples of a user's own that can't be used: each in one sentence, with the sample and what to do."""

import re

import pytest

from manyheads.runner.errors import ConfigurationError
from tests.in_process import small, train

HERE = "tests.data.own_sets"
ROWS = ("data=custom", "model=mlp", "model.num_inputs=8", "trainer.epochs=1")
REFUSED = {
    "none": r"sample 5 of Formed is None.*such as `return image, 3`.*set data\.on_corrupt=skip",
    "dict": r"samples are dicts \(x, labels\).*such as `return sample\[\"x\"\], sample\[\"labels\"\]`.*task=own_loss",
    "alone": r"are single tensors, without a target.*such as `return image, 3`",
    "pil": r"sample \d+\[0\] is a PIL image\. Add data\.transform='\[\{_target_: torchvision\.transforms\.v2\.PILTo",
    "unequal": r"sample \d+\[0\] has shape \([78],\), and sample \d+\[0\] has \([78],\).*data\.transform.*collate_fn",
    "types": r"sample \d+\[1\] is (NoneType|int), and sample \d+\[1\] is (NoneType|int)\. Return the same types",
    "object": r"of type tuple can't be stacked.*found <class 'object'>.*Return tensors, arrays or numbers",
    "keys": r"sample \d+\[\"\d+\"\] is int, and sample \d+\[\"\d+\"\] is missing",
}


def run(tmp_path, name: str, *overrides: str):
    return train(tmp_path, small(*ROWS, f"data._target_={HERE}.{name}", *overrides)).folder.read_result()


@pytest.mark.parametrize("form", REFUSED)
def test_a_sample_that_does_not_fit_is_named(tmp_path, form):
    with pytest.raises(ConfigurationError, match=f"(?s){REFUSED[form]}") as caught:
        run(tmp_path, "Formed", f"+data.form={form}", "data.num_workers=0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["unequal", "none"])
def test_it_is_named_through_loader_processes_too(tmp_path, form):
    with pytest.raises(ConfigurationError, match=f"(?s){REFUSED[form]}"):
        run(tmp_path, "Formed", f"+data.form={form}", "data.num_workers=1")


def test_a_sample_that_is_none_can_be_skipped(tmp_path):
    result = run(tmp_path, "Formed", "+data.form=none", "data.on_corrupt=skip", "data.num_workers=0")
    assert (result["samples_seen"], result["metrics"]["val_samples"], result["corrupt_samples"]) == (64, 63, 2)


def test_pil_images_are_taken_with_the_transform_that_is_named(tmp_path):
    named = "'[{_target_: torchvision.transforms.v2.PILToTensor}]'".strip("'")
    overrides = (f"data.transform={named}", f"data.val_transform={named}", "model.num_inputs=64")
    assert run(tmp_path, "Formed", "+data.form=pil", "data.num_workers=0", *overrides)["status"] == "completed"


def test_a_collate_fn_that_leaves_samples_out_is_refused(tmp_path):
    says = r"Filtered\.collate_fn returned \d+ of the \d+ samples [\d, .]+, so .* set data\.on_corrupt=skip"
    with pytest.raises(ConfigurationError, match=says):
        run(tmp_path, "Filtered", "data.num_workers=0")


def test_a_stream_is_refused_in_a_sentence(tmp_path):
    says = f"data._target_={HERE}.Stream gives an IterableDataset, whose samples have no numbers by which they could be"
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        run(tmp_path, "Stream")
