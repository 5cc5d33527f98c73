"""The loss scale and how it moves."""

INITIAL, LARGEST, WINDOW = 2.0**16, 2.0**24, 2000


class LossScaler:
    def __init__(self, loss_scale):
        self.dynamic = loss_scale == "dynamic"
        self.scale = INITIAL if self.dynamic else float(loss_scale)
        self.unskipped = 0

    @property
    def is_idle(self) -> bool:
        return not self.dynamic and self.scale == 1.0

    def update(self, *, overflow: bool) -> bool:
        """Whether the step must be skipped; a static scale never does that."""
        if overflow and self.dynamic:
            self.scale, self.unskipped = self.scale / 2, 0
            return True
        self.unskipped += 1
        if self.dynamic and self.unskipped == WINDOW:
            self.scale, self.unskipped = min(LARGEST, self.scale * 2), 0
        return False
