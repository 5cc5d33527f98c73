"""A recorder for ranks that leave and rejoin: the others keep the rows that a rank missed."""

from collections import deque

from manyheads.runner.run.json_types import Numbers, ResultJson
from manyheads.runner.run.tables.writer import NullWriter, Row

MOST = 20_000  # rows, some megabytes


class Keeping(NullWriter):
    """Keeps the last rows, and passes all rows to ``recorder``, which may write nothing."""

    def __init__(self, recorder: NullWriter):
        self._recorder = recorder
        self._rows: deque[tuple[str, Row]] = deque(maxlen=MOST)

    def step(self, row: Numbers) -> None:
        self._take("step", row)

    def epoch(self, row: Numbers) -> None:
        self._take("epoch", row)

    def evaluation(self, row: Numbers) -> None:
        self._take("evaluation", row)

    def taken(self, row: Row) -> None:
        self._take("taken", row)

    def skipped(self, row: Row) -> None:
        self._recorder.skipped(row)

    def picture(self, name: str, png: bytes, step: int) -> None:
        self._recorder.picture(name, png, step)

    def position(self) -> dict[str, int]:
        return self._recorder.position()

    def kept(self) -> list[tuple[str, Row]]:
        return list(self._rows)

    def catch_up(self, rows: list[tuple[str, Row]], *, after: int) -> None:
        for table, row in rows:
            if (row["step"] or 0) > after:
                self._take(table, row)

    def end(self, result: ResultJson) -> None:
        self._recorder.end(result)

    def close(self) -> None:
        self._recorder.close()

    def _take(self, table: str, row: Row) -> None:
        self._rows.append((table, row))
        getattr(self._recorder, table)(row)
