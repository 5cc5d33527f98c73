"""Declarations of logger=wandb."""

import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from manyheads.runner.logger.logger_option import ADDRESS, NAME, TrackerOption
from manyheads.runner.logger.tracker import Point, RunOutcome, TrackedRun, Tracker
from manyheads.runner.option.rules import KeyKind, choice
from manyheads.runner.run import scratch
from manyheads.runner.run.files import make_folder, matching, remove, whole_file


class WandBOption(TrackerOption):
    """Declares its keys: somebody else's config may not choose the account and server to publish to."""

    package = "wandb"
    settings = ("wandb/settings", ".wandb/settings", "config-defaults.yaml")
    leaves = ("wandb",)
    rules: ClassVar = {
        "project": NAME,
        "entity": NAME.of_kind(KeyKind.PLACE),
        "base_url": ADDRESS,
        "mode": choice("online", "offline"),
    }


STEP = "step"  # the x-axis of the curves
INIT_SECONDS = 10
FOLDER = "wandb"
log = logging.getLogger(__name__)


class WandB(Tracker):
    """Publishes a run to Weights & Biases. ``mode``: online or offline; None for WANDB_MODE, or else online."""

    def __init__(
        self,
        *,
        project: str = "manyheads",
        entity: str | None = None,
        base_url: str | None = None,
        mode: str | None = None,
        checkpoint: str = "none",
    ):
        super().__init__(checkpoint=checkpoint)
        self._project, self._entity, self._base_url = project, entity, base_url
        self._is_offline = (mode or os.environ.get("WANDB_MODE")) == "offline"
        self._run: Any = None
        self._open = ExitStack()

    @property
    def name(self) -> str:
        return self._key

    @property
    def url(self) -> str | None:
        return None if self._is_offline else self._run.url

    def open(self, run: TrackedRun, recorded_name: str | None) -> int | None:
        self._key, self._kept = _of_sweep(run) or run.key, run.folder / FOLDER
        self._scratch = self._open.enter_context(scratch.folder())  # its links would point outside the run's
        self._run = self._begin(run)
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)
        self._first = self._run.starting_step if self._run.resumed else 0
        if self._is_offline and _is_synced(self._kept, self._key):
            return None  # new points go to a directory of their own
        return self._first - 1

    def publish(self, points: Sequence[Point]) -> None:
        for point in points:  # an epoch's row may arrive after the server has closed its last step
            row = {**point.values, STEP: point.step, "_timestamp": point.time}
            self._run.log(row, step=max(point.step, self._first))

    def picture(self, name: str, png: bytes, step: int) -> None:
        import wandb

        path = self._scratch / f"{name}.png"
        path.write_bytes(png)
        try:
            image = wandb.Image(str(path), caption=f"after {step} updates")
        except (OSError, ValueError, SyntaxError) as error:  # Pillow's, for what is damaged
            log.warning("%s.png is not shown: %s", name, error)
            return
        now = max(step, self._run.step)  # the client drops what comes after a later step
        self._run.log({f"pictures/{name}": image, **({STEP: step} if now == step else {})}, step=now)

    def upload(self, path: Path, name: str) -> None:
        copy = Path(self._run.dir) / name  # a link would be broken once the folder is moved
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        self._run.save(str(copy), base_path=self._run.dir, policy="end")

    def close(self, outcome: RunOutcome) -> None:
        self._run.summary.update({**outcome.values, "status": outcome.status})
        if outcome.error:
            self._run.summary["error"] = outcome.error
        self._run.finish(exit_code=0 if outcome.status in ("completed", "running") else 1)
        if self._is_offline:
            self._keep()
        self._open.close()

    def _keep(self) -> None:
        """Copy what was written offline into the run folder, replacing what is not synced yet."""
        import wandb

        wandb.teardown()  # waits for the client's process, which may still write after the run has finished
        for path in matching(self._kept, f"offline-run-*-{self._key}"):
            if not _is_synced_one(path):
                remove(path)
        scratch_folder = self._scratch / FOLDER
        for path in scratch_folder.glob(f"offline-run-*-{self._key}/**/*"):
            target = self._kept / path.relative_to(scratch_folder)
            # The client's own logs have a link into the user's home.
            if path.is_file() and not path.is_symlink() and "logs" not in target.relative_to(self._kept).parts:
                make_folder(target.parent)
                with open(path, "rb") as file, whole_file(target) as copy:
                    shutil.copyfileobj(file, copy)

    def _begin(self, run: TrackedRun) -> Any:
        import wandb

        os.environ["WANDB_SILENT"] = "true"
        if os.environ.get("WANDB_RUN_ID") != self._key:  # for the client they would come before the id below
            for name in ("WANDB_RUN_ID", "WANDB_SWEEP_ID"):
                os.environ.pop(name, None)
        settings: dict[str, Any] = {
            **dict.fromkeys(("x_disable_stats", "x_disable_meta", "disable_git", "disable_code", "silent"), True),
            **dict.fromkeys(("x_save_requirements", "save_code"), False),
            "console": "off",
            "init_timeout": INIT_SECONDS,
            **({"base_url": self._base_url} if self._base_url else {}),
        }
        return wandb.init(
            id=self._key,
            name=run.name,
            project=self._project,
            entity=self._entity,
            group=run.group.name if run.group else None,
            tags=[*run.tags] or None,
            notes=run.notes,
            config={**run.config, **{f"manyheads.{name}": value for name, value in run.facts.items()}},
            dir=str(self._scratch),
            mode="offline" if self._is_offline else "online",
            resume=None if self._is_offline else "allow",
            reinit="finish_previous",
            settings=wandb.Settings(**settings),
        )


def _of_sweep(run: TrackedRun) -> str | None:
    """The id that the server of a sweep of W&B's own chose for the run that its agent starts, None for other runs."""
    return os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ and run.group is None else None


def _is_synced(folder: Path, key: str) -> bool:
    """Whether `wandb sync` has sent what was written of the run offline."""
    return any(map(_is_synced_one, matching(folder, f"offline-run-*-{key}")))


def _is_synced_one(path: Path) -> bool:
    return bool(matching(path, "*.synced"))
