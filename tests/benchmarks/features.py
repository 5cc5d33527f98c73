"""What features cost that are switched on, beside the same written by hand: metrics, callbacks, transforms, text."""

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from manyheads.runner.loop.trainer import Trainer
from tests.benchmarks.loop import Prebuilt, model, ours
from tests.benchmarks.measure import Comparison, compare
from tests.in_process import attempt, config, opened

OURS, BY_HAND, CLASSES, STEPS = "manyheads", "the same by hand", 10, 40
# An evaluation of 20,000 samples, the ranking and a table of each of them included.
EVALUATED = (
    *("data=synthetic", "data.image_size=8", "data.train_samples=200", "data.val_samples=20000", "data.batch_size=100"),
    *("metrics=[auroc]", "callbacks=[predictions]", "launcher.threads_per_rank=1", "trainer.device=cpu", "logger=[]"),
)
FLIPPED = (
    *("data.image_size=32", "data.batch_size=64", "launcher.threads_per_rank=1", "trainer.device=cpu", "logger=[]"),
    "data.transform=[{_target_:torchvision.transforms.v2.RandomHorizontalFlip},"
    "{_target_:torchvision.transforms.v2.RandomCrop,size:32,padding:4}]",
)
TEXT = (
    *("task=language_model", "model=gpt", "model.width=48", "data=stdlib_text", "data.batch_size=8", "optimizer=adamw"),
    *(f"trainer.max_steps={STEPS}", "trainer.evaluate_every=0", "checkpoint.every=0", "launcher.threads_per_rank=1"),
    *("trainer.device=cpu", "scheduler=constant", "logger=[]"),
)


def metrics(rounds: int = 9) -> Comparison:
    """F1 and IoU of each log window; by hand a confusion matrix that is added up."""
    torch.set_num_threads(1)
    data = Prebuilt()
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Callable[[], float]] = {
            BY_HAND: lambda: _with_matrix(model(), data),
            OURS: lambda: ours(data, Path(folder), metrics=("f1", "iou")),
        }
        return compare(f"{data.updates} steps of a tiny MLP, with metrics=[f1,iou]", candidates, rounds=rounds)


def _with_matrix(net: nn.Module, data: Prebuilt) -> float:
    loss_of, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    matrix, total, right = torch.zeros(CLASSES, CLASSES, dtype=torch.long), torch.zeros(()), torch.zeros(())
    start = time.perf_counter()
    for inputs, targets in data.pairs:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = loss_of(outputs, targets)
        loss.backward()
        optimizer.step()
        found = outputs.detach().argmax(1)
        total += loss.detach()
        right += (found == targets).sum()
        matrix += torch.bincount(targets * CLASSES + found, minlength=CLASSES**2).view(CLASSES, CLASSES)
    return time.perf_counter() - start


def evaluation(rounds: int = 5) -> Comparison:
    """AUROC and predictions.csv; by hand scikit-learn's function and Python's csv module."""
    with tempfile.TemporaryDirectory() as folder:
        session = attempt(Path(folder), config(*EVALUATED))
        session.start()
        trainer = session.trainer
        candidates: dict[str, Callable[[], float]] = {
            BY_HAND: lambda: _evaluated(trainer, Path(folder) / "by_hand.csv"),
            OURS: lambda: _seconds(trainer.evaluate),
        }
        found = compare("20,000 samples evaluated, with auroc and predictions", candidates, rounds=rounds)
        trainer.close()
        return found


@torch.no_grad()
def _evaluated(trainer: Trainer, path: Path) -> float:
    net, start = trainer.update.model.eval(), time.perf_counter()
    losses, scores, labels = list[Tensor](), list[Tensor](), list[Tensor]()
    for batch in trainer.evaluation.loader.epoch(0):
        logits, targets = net(batch.inputs), batch.content[1]
        losses.append(nn.functional.cross_entropy(logits, targets, reduction="none"))
        scores.append(logits.softmax(1))
        labels.append(targets)
    loss, probabilities, truth = (torch.cat(each).numpy() for each in (losses, scores, labels))
    roc_auc_score(truth, probabilities, multi_class="ovr", labels=range(CLASSES))
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        found, best = probabilities.argmax(1), probabilities.max(1)
        table.writerows(zip(range(len(loss)), loss, truth, found, best, strict=True))
    return time.perf_counter() - start


def transforms(rounds: int = 5) -> Comparison:
    """Two of torchvision's on each image, drawn per sample here; by hand a data set over torch's own loader."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), config(*FLIPPED)) as trainer:
        dataset = trainer.train.batches.dataset
        plain = DataLoader(_Flipped(dataset.dataset), batch_size=64, shuffle=True, drop_last=True)  # type: ignore[attr-defined]
        candidates: dict[str, Callable[[], float]] = {
            BY_HAND: lambda: _seconds(lambda: list(plain)),
            OURS: lambda: _seconds(lambda: list(trainer.train.epoch(0))),
        }
        return compare("an epoch of images, two transforms of torchvision each", candidates, rounds=rounds)


class _Flipped(Dataset):  # type: ignore[type-arg]
    def __init__(self, images: Dataset):  # type: ignore[type-arg]
        self.images = images
        self.change = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(32, padding=4)])

    def __len__(self) -> int:
        return len(self.images)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, target = self.images[index]
        return self.change(image), target


def text(rounds: int = 5) -> Comparison:
    """task=language_model, with perplexity over all tokens; by hand the loop of a tutorial over the same batches."""
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[str, Callable[[], float]] = {
            BY_HAND: lambda: _by_hand(Path(tempfile.mkdtemp(dir=folder))),
            OURS: lambda: _trained(Path(tempfile.mkdtemp(dir=folder))),
        }
        return compare(f"{STEPS} steps of a small GPT, with task=language_model", candidates, rounds=rounds)


def _trained(folder: Path) -> float:
    with opened(folder, config(*TEXT)) as trainer:
        trainer.update.prime(trainer.train.example)
        return _seconds(lambda: trainer.fit(lambda **_: None, due_after_step=lambda _: False))


def _by_hand(folder: Path) -> float:
    with opened(folder, config(*TEXT)) as trainer:
        net, loader = trainer.update.model.train(), trainer.train
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.001, fused=True)
        start = time.perf_counter()
        for step, batch in enumerate(loader.epoch(0)):
            if step == STEPS:
                break
            tokens, labels = batch.content
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(tokens).flatten(0, 1), labels.flatten()).backward()
            optimizer.step()
        return time.perf_counter() - start


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    for measure in (metrics, evaluation, transforms, text):
        found = measure()
        print(found.name, found.ratios())
