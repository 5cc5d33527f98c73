"""What loops over ready batches share: loader processes that pass them on, and a clock over an update with each."""

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests.benchmarks.gpu.case import WARM_UP, Case, Measured, Setup
from tests.benchmarks.gpu.device import Stopwatch
from tests.benchmarks.gpu.ready import Ready

Pair = tuple[Tensor, Tensor]


class Batches(Dataset):
    """Each item is a batch, the same ``pair`` of images and targets each time."""

    def __init__(self, case: Case, setup: Setup):
        self.case, self.setup = case, setup
        ready = Ready(samples=setup.batch_size, batch=setup.batch_size, size=setup.image_size)
        self.pair: Pair = (ready.images, ready.targets)

    def __len__(self) -> int:
        return self.setup.end(self.case) + 1

    def __getitem__(self, index: int) -> Pair:
        return self.pair

    def loader(self) -> DataLoader:
        return DataLoader(
            self,
            batch_size=None,
            num_workers=self.setup.workers(self.case),
            pin_memory=self.setup.device == "cuda",
            multiprocessing_context="fork",
        )

    def timed(self, update: Callable[[Tensor, Tensor], object], warm: Pair, pairs: Iterable[Pair]) -> Measured:
        """Updates with ``warm`` come first, which choose algorithms and compile; then the clock runs over ``pairs``."""
        for _ in range(WARM_UP):
            update(*warm)
        watch = Stopwatch(self.case, self.setup)
        for step, pair in enumerate(watch.waiting(pairs), 1):
            update(*pair)
            watch(step)
            if step == watch.end:
                break
        return watch.measured()
