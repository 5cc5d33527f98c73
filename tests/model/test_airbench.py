"""The net of the CIFAR-10 speed records, whose first layer whitens the training images."""

import pytest
import torch

from manyheads.runner.model.rank.airbench import Airbench, whitening
from tests.in_process import config, opened, small, train, weights

NET = ("model=airbench", "model.widths=[6,8]", "model.whitening_samples=50", "data.image_size=12")
RECIPE = (
    *("experiment=cifar10_airbench94", "data=synthetic", "data.train_samples=96", "data.val_samples=16"),
    *(
        "data.image_size=12",
        "data.batch_size=24",
        "model.widths=[6,8,8]",
        "precision.dtype=bfloat16",
        "trainer.compile=none",
    ),
    *("trainer.device=cpu", "launcher.threads_per_rank=1", "checkpoint.every=7"),
)


def made(**changes) -> Airbench:
    given = {"widths": [6, 8], "batchnorm_momentum": 0.4, "whitening_samples": 50, "whitening_eps": 5e-4, **changes}
    return Airbench(num_classes=5, **given)


@pytest.mark.parametrize(("widths", "size"), [([6, 8], 5), ([6, 8], 33), ([6, 8, 8], 32)])
def test_logits_for_images_of_any_size_from_two_to_the_groups_on(widths, size):
    assert made(widths=widths)(torch.zeros(2, 3, size, size)).shape == (2, 5)


def test_it_begins_as_its_source_says():
    model = made(widths=[64, 256, 256])
    assert sum(parameter.numel() for parameter in model.parameters()) - 256 * 5 == 1_972_792 - 256 * 10
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    norms = {f"groups.{group}.{layer}.weight" for group in (1, 2, 3) for layer in (2, 5)}
    assert frozen == {"whiten.weight", *norms}
    identity = model.groups[1][0].weight[:24]
    assert torch.equal(identity[:, :, 1, 1], torch.eye(24))
    assert identity.abs().sum() == 24
    assert not torch.equal(model.groups[1][0].weight[24:48, :, 1, 1], torch.eye(24))
    torch.testing.assert_close(model.head.weight.std(), torch.tensor(1.0))


def moments(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """E[y y^T] of what the filters make of all patches."""
    found = torch.nn.functional.conv2d(images.double(), weight.double()).transpose(0, 1).flatten(1)
    return found @ found.T / found.shape[1]


def test_patches_become_uncorrelated_and_of_variance_one():
    torch.manual_seed(0)
    images = torch.nn.functional.avg_pool2d(torch.randn(300, 3, 20, 20), 3, 1)  # neighbours are alike
    images[:, 1] += 0.9 * images[:, 0]
    weight = whitening(images, eps=0.0)
    assert not torch.allclose(moments(images, torch.eye(12).view(12, 3, 2, 2)), torch.eye(12).double(), atol=0.1)
    torch.testing.assert_close(moments(images, weight), torch.eye(12).double(), rtol=0, atol=1e-9)
    small = moments(images, whitening(images, eps=0.1)).diagonal()  # of what hardly varies, little is left
    assert small.max() < 1
    assert torch.equal(small, small.sort().values)


def test_the_number_of_threads_changes_no_bit():
    images, threads = torch.rand(300, 3, 16, 16), torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(whitening(images, eps=5e-4))
        assert torch.get_num_threads() == count
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_a_run_begins_with_the_first_training_samples_whitened(tmp_path):
    with opened(tmp_path / "a", small(*NET, "precision=fp64")) as trainer:
        weight = weights(trainer)["whiten.weight"]
        assert torch.equal(weight[:12], -weight[12:])
        images = trainer.train.first(50)
        assert images.shape == (50, 3, 12, 12)
        assert torch.equal(weight[:12], whitening(images, eps=5e-4))
        assert trainer.train.first(10**6).shape[0] == 160
    with opened(tmp_path / "b", small(*NET, "precision=fp64", "seed=5")) as trainer:  # which are not augmented here
        assert torch.equal(weights(trainer)["whiten.weight"], weight)


@pytest.mark.parametrize("key", ["checkpoint.load", "model.pretrained"])
def test_given_weights_are_left_alone(tmp_path, key):
    first = train(tmp_path / "first", small(*NET, "trainer.epochs=1"))
    file = tmp_path / "first" / "checkpoints" / "last.pt"
    other = small(*NET, "data=digits", "data.image_size=12", "model.num_classes=3", f"{key}={file}")
    with opened(tmp_path / "second", other) as trainer:
        assert torch.equal(weights(trainer)["whiten.weight"], weights(first.trainer)["whiten.weight"])


def test_the_recipe_is_resumed_to_the_bit_and_rests_its_whitening(tmp_path):
    whole = train(tmp_path / "whole", config(*RECIPE))
    first, second, last = (
        train(tmp_path / "cut", config(*RECIPE, f"trainer.stop_after={step}")) for step in (7, 12, 32)
    )
    assert last.folder.read_result()["weights_sha256"] == whole.folder.read_result()["weights_sha256"]
    bias = [weights(run.trainer)["whiten.bias"] for run in (first, second, last)]
    assert not torch.equal(bias[0], bias[1])
    assert torch.equal(bias[1], bias[2])  # of three epochs
    assert torch.equal(weights(first.trainer)["whiten.weight"], weights(whole.trainer)["whiten.weight"])
