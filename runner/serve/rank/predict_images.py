"""``manyheads predict``: the classes of image files, as a table."""

import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from manyheads.runner.data.imagefolder_listing import EXTENSIONS, is_image
from manyheads.runner.errors import ConfigurationError, printable, warn
from manyheads.runner.run.data_files import cell
from manyheads.runner.run.files import whole_file
from manyheads.runner.run.progress import working
from manyheads.runner.serve.rank.trained import TOP, Prediction, Trained
from manyheads.runner.wording import counted, listed

MOST_ENDINGS = 5

Answer = Prediction | str  # a string says why the file could not be read


def predict_files(trained: Trained, paths: Sequence[str], out: Path, *, device: str = "auto") -> tuple[int, int]:
    """Write the classes of these image files, and of those below these folders, to a table ``out``.

    device: "auto" for a GPU if there is one, or a device of torch. Returns the numbers of files and of those that
    could not be read: their rows are empty, and a warning names each. Raises ConfigurationError.
    """
    files, unreadable = images_in(paths), 0
    columns = header(min(TOP, trained.description.num_classes or TOP))
    refuse_folder(out)
    move(trained, device)
    with table(out) as writer, working("predicting", len(files), kept=f"{out} was not written") as work:
        writer.writerow(columns)
        for path, answer in answers(trained, files):
            if isinstance(answer, str):
                unreadable += 1
                print(f"warning: {printable(path)} cannot be read: {printable(answer)}", file=sys.stderr)
            cells = row(path, answer)
            writer.writerow([*map(cell, cells), *[""] * (len(columns) - len(cells))])
            work.advance()
    return len(files), unreadable


def move(trained: Trained, device: str) -> None:
    """Move the model to a device of torch; "auto" is a GPU if there is one."""
    trained.model.to(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


@contextmanager
def table(out: Path) -> Iterator[Any]:
    """A context with the ``csv.writer`` of a file, which is written completely, or not at all."""
    # A link of that name, which others may have sent, is replaced.
    with whole_file(out.parent.resolve() / out.name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")  # any name of a file
        yield csv.writer(text, lineterminator="\n")
        text.flush()
        text.detach()


def refuse_folder(out: Path) -> None:
    """Raises ConfigurationError for a table in a folder that does not exist."""
    if not out.parent.is_dir():
        raise ConfigurationError.at(
            "--out", out, f": the folder {out.parent} does not exist. Create it, or name another file."
        )


def images_in(paths: Sequence[str]) -> list[str]:
    """The files that are named, and the images below the folders that are. Raises ConfigurationError for none."""
    files: list[str] = []
    others = Counter[str]()
    for path in paths:
        if os.path.isdir(path):
            below = [os.path.join(parent, name) for parent, _, names in os.walk(path) for name in names]
            files += sorted(filter(is_image, below))
            names = (os.path.basename(name) for name in below if not is_image(name))
            others.update(os.path.splitext(name)[1].lower() or name for name in names if name[0] != ".")
        elif os.path.exists(path):
            files.append(path)
        else:
            raise ConfigurationError(f"{path} does not exist. Name image files, or folders of them.")
    if others:
        endings = listed([f"{count:,} {ending}" for ending, count in others.most_common()], MOST_ENDINGS)
        images = f"Images end in {', '.join(EXTENSIONS)}."
        warn(f"skipped {counted(others.total(), 'file')} ({printable(endings)}). {images}")
    if not files:
        raise ConfigurationError(f"there are no images in {', '.join(paths)}. Allowed: {', '.join(EXTENSIONS)}.")
    return files


def answers(trained: Trained, files: Sequence[str]) -> Iterator[tuple[str, Answer]]:
    """Each file with its prediction, or why it cannot be read; batch by batch, decoded by several threads."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(files), trained.at_once):
            part = files[start : start + trained.at_once]
            read = list(threads.map(lambda path: _read(trained, path), part))
            good = [image for image in read if not isinstance(image, str)]
            predictions = iter(trained.predict(torch.stack(good)) if good else ())
            for path, image in zip(part, read, strict=True):
                yield path, image if isinstance(image, str) else next(predictions)


def header(classes: int) -> list[str]:
    """The columns' names: the likeliest class, and up to four more."""
    more = [(f"class_{position}", f"probability_{position}") for position in range(2, classes + 1)]
    return ["file", "class", "probability", *(name for pair in more for name in pair)]


def row(path: str, answer: Answer) -> list[Any]:
    """One line of the table."""
    if isinstance(answer, str):
        return [path]
    return [path, *(cell for label, share in answer.top for cell in (label, f"{share:.6f}"))]


def _read(trained: Trained, path: str) -> torch.Tensor | str:
    try:
        return trained.preprocess(path)
    except ConfigurationError:  # every other file would raise it too
        raise
    except Exception as error:  # each image format has errors of its own
        return " ".join(str(error).split()) or type(error).__name__
