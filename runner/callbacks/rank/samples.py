"""callbacks=samples: what the model makes of the same samples, or draws, after each evaluation, in one picture.

The picture goes to ``pictures/``, from where loggers and trackers take it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from manyheads.runner.callbacks.callback import Callback, RunContext, file_name, png
from manyheads.runner.errors import ConfigurationError, printable

TEXTS, WIDTH = 6, 90  # continuations that are shown; characters of a line


class SamplePictures(Callback):
    """Shows ``count`` samples: what the task's own ``sample(model, count)`` returns, images (N, C, H, W) or texts.

    Without that method, the first samples of the evaluation with their predictions; of tokens, the continuation of
    their first half by ``tokens`` likeliest ones. The model is called within ``RunContext.sampling``.
    """

    every_rank = True

    def __init__(self, *, count: int = 16, tokens: int = 48) -> None:
        self.count, self.tokens = count, tokens
        self._seen: dict[int, tuple[Any, Any]] = {}  # by id, what was evaluated, and the output or the score

    def on_start(self, run: RunContext) -> None:
        self.run, self._step = run, run.step
        self._draws, self._continues = hasattr(run.task, "sample"), bool(getattr(run.task, "counts_tokens", False))

    def on_update(self, step: int) -> None:
        self._step = step

    def on_evaluation_batch(self, outputs: Any, batch: Any, ids: Sequence[int]) -> None:
        chosen = range(0 if self._draws else min(len(ids), self.count - len(self._seen)))
        if not chosen:
            return
        scores = outputs if self._continues else self.run.task.scored(outputs, batch)
        inputs = batch[0] if isinstance(batch, (tuple, list)) else None
        if self._continues and isinstance(inputs, Tensor):
            self._seen |= {ids[at]: (inputs[at].cpu(), None) for at in chosen}
        elif not self._continues and len(scores[0]) == len(ids):
            shown = inputs if isinstance(inputs, Tensor) else [None] * len(ids)
            self._seen |= {ids[at]: (_kept(shown[at]), (_value(scores[0][at]), _value(scores[1][at]))) for at in chosen}

    def on_evaluation(self, split: str, samples: Any) -> None:
        ranks, self._seen = self.run.gather(self._seen), {}
        by_id = {number: shown for rank in ranks for number, shown in rank.items()}
        seen = [by_id[number] for number in sorted(by_id)[: self.count]]
        if self._draws:
            with self.run.sampling() as model:
                drawn = self.run.task.sample(model, self.count)
            images = drawn if isinstance(drawn, Tensor) else None
            lines = [] if isinstance(drawn, Tensor) else [str(line) for line in drawn]
        elif not seen:
            raise ConfigurationError(
                "callbacks.samples: this task shows neither scores of complete samples nor tokens. Give it a method "
                "sample(model, count) that returns images or texts, or leave the callback out.",
                key="callbacks.samples",
            )
        elif self._continues:
            images, lines = None, self._continued([tokens for tokens, _ in seen[:TEXTS]])
        else:
            lines = [_told(scores, getattr(samples, "classes", None)) for _, scores in seen]
            pictures = [image for image, _ in seen if image is not None]
            images = torch.stack(pictures) if len({image.shape for image in pictures}) == 1 else None
        if self.run.rank == 0:
            picture = drawn_images(images, lines) if images is not None else drawn_lines(lines)
            self.run.picture(file_name("samples", split), picture, self._step)

    def _continued(self, blocks: list[Tensor]) -> list[str]:
        """The first half of each block, and what follows by the likeliest tokens."""
        size = min(len(block) for block in blocks)
        device = next(self.run.model.parameters()).device
        tokens = torch.stack([block[: max(1, size // 2)] for block in blocks]).to(device)
        begin = tokens.shape[1]
        with self.run.sampling() as model:
            for _ in range(self.tokens):
                logits = model(tokens[:, -size:])
                last = (logits if isinstance(logits, Tensor) else logits["logits"])[:, -1]
                tokens = torch.cat([tokens, last.argmax(-1, keepdim=True)], 1)
        are_bytes = self.run.config["data"].get("tokenizer") is None
        return [f"{_text(row[:begin], are_bytes)} | {_text(row[begin:], are_bytes)}" for row in tokens.tolist()]


def _kept(image: Any) -> Tensor | None:
    """An image (C, H, W) with one or three channels on the CPU; None for other samples."""
    is_image = isinstance(image, Tensor) and image.ndim == 3 and image.shape[0] in (1, 3)
    return image.detach().float().cpu() if is_image else None


def _value(score: Tensor) -> Any:
    return score.detach().cpu().tolist()


def _told(scores: tuple[Any, Any], classes: Sequence[str] | None) -> str:
    """A prediction and its target in words."""
    predicted, target = scores
    if not isinstance(predicted, list):
        return f"{predicted:.4g} ({target:.4g})"
    if isinstance(target, list):
        both = [" ".join(str(at) for at, value in enumerate(values) if value > 0) for values in (predicted, target)]
        return "{} ({})".format(*both)
    names = classes or [str(number) for number in range(len(predicted))]
    right = printable(str(names[target])) if 0 <= target < len(names) else "?"
    return f"{printable(str(names[int(np.argmax(predicted))]))} ({right})"


def _text(tokens: list[int], are_bytes: bool) -> str:
    return printable(bytes(tokens).decode(errors="replace")) if are_bytes else " ".join(map(str, tokens))


def drawn_images(images: Tensor, titles: Sequence[str] = ()) -> bytes:
    """Images (N, 1 or 3, H, W), in 0..1 or scaled to it, as one PNG, with titles if there are some."""
    pixels = images.detach().float().cpu()
    if pixels.min() < 0 or pixels.max() > 1:
        pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp(min=1e-12)
    columns = max(1, math.ceil(math.sqrt(len(pixels))))
    figure = Figure(figsize=(1.6 * columns, 1.8 * math.ceil(len(pixels) / columns)), layout="constrained")
    for number, image in enumerate(pixels.permute(0, 2, 3, 1).numpy()):
        axes = figure.add_subplot(math.ceil(len(pixels) / columns), columns, number + 1)
        axes.imshow(image.squeeze(2) if image.shape[2] == 1 else image, cmap="gray", vmin=0, vmax=1)
        axes.set_axis_off()
        if titles:
            axes.set_title(titles[number][:24], fontsize=7, parse_math=False)  # it may contain $
    return png(figure)


def drawn_lines(lines: Sequence[str]) -> bytes:
    """Texts as one PNG."""
    rows = [line[start : start + WIDTH] for line in lines for start in range(0, max(1, len(line)), WIDTH)]
    figure = Figure(figsize=(9, 0.5 + 0.22 * len(rows)))
    figure.text(0.02, 0.98, "\n".join(rows), va="top", family="monospace", fontsize=9, parse_math=False)
    return png(figure)
