"""``manyheads explain``: have the ranks of a run measure updates and their parts, and show what limits them."""

import sys
from collections.abc import Sequence

from manyheads.runner.answers.explain.answer import Explanation
from manyheads.runner.answers.measure.subject import measure, subject_of
from manyheads.runner.charts.picture_file import PictureFile
from manyheads.runner.config.candidates import candidates


def explain(words: Sequence[str], *, config_dir: str | None = None, picture: str | None = None) -> Explanation:
    """Measure what limits a run. ``words``: overrides, as for train; or the folder of a run, and changes to its config.

    Raises ConfigurationError, and RunFailed if the run fails.
    """
    image = None if picture is None else PictureFile.named(picture)
    subject = subject_of(words, config_dir=config_dir)
    tries = [*candidates(subject.run)]
    folder, result = measure(subject.run)
    found = Explanation.of(
        folder,
        result["floors"],
        result["time"],
        ranks=subject.run.launcher.ranks,
        candidates=tries,
        base=subject.overrides,
    )
    if image is not None:
        image.write(found.picture(form=image.form))
        print(f"wrote {image.path}", file=sys.stderr)
    return found
