"""The trainer section of the run config, as far as the loop needs it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """total_steps: of the schedule; last_step: where the run ends, at the latest with the schedule."""

    epochs: int
    total_steps: int
    last_step: int
    evaluate_every: int
    grad_accumulation: int
    clip_norm: float
    log_every: int
    on_nan: str
