"""Fit the constants to measured rows: `python -m regroup.service.planner.fit TRAIN.csv --out C`.

Levenberg-Marquardt on the logarithms of predicted over measured (Marquardt 1963), robust to odd rows (Huber 1964), and
held to what is physical by a prior: a row says something about a constant only as far as it must.
"""

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regroup.service.planner.constants import RANGES, Constants
from regroup.service.planner.measured_rows import Row, RowError, read_row
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.time_model import step_time

_TIMES = tuple(name for name, each in RANGES.items() if not each.of_memory)
_MEMORY = tuple(name for name, each in RANGES.items() if each.of_memory)
_HUBER = 0.1
"""Deviations beyond this count by their size, no longer by its square."""
_NUDGE = 1e-4
_NOISE = 0.1
"""Spread of one row that the prior is weighed against."""
_MOST_ROUNDS = 25
_MOST_DAMPING = 1e6
_ENOUGH = 1e-5


def fit(rows: Sequence[Row], start: Constants | None = None) -> Constants:
    """Constants that fit `rows` best; those rows say nothing about stay near `start`, the defaults if absent."""
    start = start or Constants()
    timed = [row for row in rows if row.step_s is not None]
    weighed = [row for row in rows if row.memory_gb is not None]
    found = _descend(timed, start, _TIMES, _step_error) if timed else start
    return _descend(weighed, found, _MEMORY, _memory_error) if weighed else found


def _step_error(row: Row, constants: Constants) -> float:
    assert row.step_s is not None
    return math.log(step_time(row.work, row.cluster, row.plan, constants).step_s / row.step_s)


def _memory_error(row: Row, constants: Constants) -> float:
    assert row.memory_gb is not None
    return math.log(peak_bytes(row.work, row.plan, constants, row.kept) / (row.memory_gb * 1e9))


_Error = Callable[[Row, Constants], float]


@dataclass(frozen=True)
class _Problem:
    """Rows, what they weigh, and which constants they may move."""

    rows: Sequence[Row]
    weights: Sequence[float]
    start: Constants
    names: Sequence[str]
    error: _Error

    def origin(self) -> list[float]:
        """Logarithms of what the constants start from."""
        return [math.log(getattr(self.start, name)) for name in self.names]

    def errors(self, point: Sequence[float]) -> list[float]:
        """Of each row, with constants of these logarithms."""
        there = _at(self.start, self.names, point)
        return [self.error(row, there) for row in self.rows]

    def cost(self, errors: Sequence[float], point: Sequence[float]) -> float:
        """Huber's loss of the rows, and what leaving the start costs."""
        total = 0.0
        for error, weight in zip(errors, self.weights, strict=True):
            size = abs(error)
            total += weight * (size**2 / 2 if size <= _HUBER else _HUBER * (size - _HUBER / 2))
        for value, first, name in zip(point, self.origin(), self.names, strict=True):
            total += ((value - first) * _NOISE / RANGES[name].spread) ** 2 / 2
        return total

    def slope(self, point: Sequence[float], here: Sequence[float]) -> tuple[list[list[float]], list[float]]:
        """Gauss-Newton's matrix and the way downhill."""
        columns: list[list[float]] = []
        for index in range(len(self.names)):
            nudged = [value + (_NUDGE if index == place else 0.0) for place, value in enumerate(point)]
            columns.append([(there - now) / _NUDGE for there, now in zip(self.errors(nudged), here, strict=True)])
        worth = [w * min(1.0, _HUBER / max(abs(e), 1e-12)) for w, e in zip(self.weights, here, strict=True)]
        matrix = [[math.fsum(map(_product, worth, one, two)) for two in columns] for one in columns]
        downhill = [-math.fsum(map(_product, worth, column, here)) for column in columns]
        for index, (name, first) in enumerate(zip(self.names, self.origin(), strict=True)):
            pull = (_NOISE / RANGES[name].spread) ** 2
            matrix[index][index] += pull
            downhill[index] -= pull * (point[index] - first)
        return matrix, downhill


def _product(one: float, two: float, three: float) -> float:
    return one * two * three


def _descend(rows: Sequence[Row], start: Constants, names: Sequence[str], error: _Error) -> Constants:
    problem = _Problem(rows, _weights(rows), start, names, error)
    point = problem.origin()
    here = problem.errors(point)
    cost = problem.cost(here, point)
    damping = 1e-2
    for _ in range(_MOST_ROUNDS):
        matrix, downhill = problem.slope(point, here)
        gained = 0.0
        while damping < _MOST_DAMPING and not gained:
            lifted = [[v * (1 + damping) if i == j else v for j, v in enumerate(line)] for i, line in enumerate(matrix)]
            steps = _solve(lifted, downhill)
            trial = [_within(name, p + d) for name, p, d in zip(names, point, steps, strict=True)]
            there = problem.errors(trial)
            lower = problem.cost(there, trial)
            if lower < cost:
                gained = cost - lower
                point, here, cost, damping = trial, there, lower, damping / 5
            else:
                damping *= 4
        if gained <= _ENOUGH * cost:
            break
    return _at(start, names, point)


def _weights(rows: Sequence[Row]) -> list[float]:
    """A stack of four times as many rows counts twice as much in all: many rows of one stack repeat themselves."""
    counts = Counter(row.stack for row in rows)
    weights = [counts[row.stack] ** -0.5 for row in rows]
    return [weight * len(rows) / sum(weights) for weight in weights]


def _at(start: Constants, names: Sequence[str], point: Sequence[float]) -> Constants:
    return Constants(**{**asdict(start), **{n: math.exp(v) for n, v in zip(names, point, strict=True)}})


def _within(name: str, value: float) -> float:
    return min(math.log(RANGES[name].high), max(math.log(RANGES[name].low), value))


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gauss with partial pivoting."""
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(rows[index][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            rows[below] = [a - factor * b for a, b in zip(rows[below], rows[column], strict=True)]
    answer = [0.0] * size
    for index in reversed(range(size)):
        rest = sum(rows[index][place] * answer[place] for place in range(index + 1, size))
        answer[index] = (rows[index][size] - rest) / rows[index][index]
    return answer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fit the planner's constants to measured rows.")
    parser.add_argument("train", type=Path, metavar="TRAIN.csv")
    parser.add_argument("--out", type=Path, required=True, metavar="C", help="where the constants go, JSON")
    asked = parser.parse_args()
    rows: list[Row] = []
    with asked.train.open(newline="") as lines:
        for number, columns in enumerate(csv.DictReader(lines), start=1):
            try:
                rows.append(read_row(columns))
            except RowError as error:
                print(f"row {number} is left out: {error}", file=sys.stderr)
    full = [row for row in rows if row.full]
    asked.out.write_text(fit(full).to_json())
    print(f"fitted to {len(full)} rows; {len(rows) - len(full)} more state too little of what was run")


if __name__ == "__main__":
    main()
