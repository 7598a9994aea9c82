"""Fit the constants to measured rows: `python -m regroup.service.planner.fit TRAIN.csv --out C`.

The fit is Levenberg-Marquardt on the logarithms of predicted over measured (Marquardt 1963). A Huber loss (Huber 1964)
limits the influence of outliers. A prior keeps the constants in their physical range.
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

_TIMES = tuple(name for name, each in RANGES.items() if not each.is_memory)
_MEMORY = tuple(name for name, each in RANGES.items() if each.is_memory)
_HUBER = 0.1
"""Deviation beyond which the loss is linear instead of quadratic."""
_DIFFERENCE = 1e-4
_NOISE = 0.1
"""Standard deviation of one row, relative to which the prior is weighted."""
_MAX_ROUNDS = 25
_MAX_DAMPING = 1e6
_TOLERANCE = 1e-5


def fit(rows: Sequence[Row], start: Constants | None = None) -> Constants:
    """Return the constants that fit `rows` best.

    Args:
        start: prior; the default constants if absent. Constants that no row depends on stay near it.
    """
    start = start or Constants()
    timed = [row for row in rows if row.step_s is not None]
    with_memory = [row for row in rows if row.memory_gb is not None]
    found = _descend(timed, start, _TIMES, _step_error) if timed else start
    return _descend(with_memory, found, _MEMORY, _memory_error) if with_memory else found


def _step_error(row: Row, constants: Constants) -> float:
    assert row.step_s is not None
    return math.log(step_time(row.work, row.cluster, row.plan, constants).step_s / row.step_s)


def _memory_error(row: Row, constants: Constants) -> float:
    assert row.memory_gb is not None
    return math.log(peak_bytes(row.work, row.plan, constants, row.states) / (row.memory_gb * 1e9))


_Error = Callable[[Row, Constants], float]


@dataclass(frozen=True)
class _Problem:
    """Rows with weights, and the names of the constants to fit."""

    rows: Sequence[Row]
    weights: Sequence[float]
    start: Constants
    names: Sequence[str]
    error: _Error

    def origin(self) -> list[float]:
        """Return the logarithms of the starting values."""
        return [math.log(getattr(self.start, name)) for name in self.names]

    def errors(self, point: Sequence[float]) -> list[float]:
        """Return the error of each row, for constants with these logarithms."""
        constants = _at(self.start, self.names, point)
        return [self.error(row, constants) for row in self.rows]

    def cost(self, errors: Sequence[float], point: Sequence[float]) -> float:
        """Return the Huber loss of the rows plus the cost of the prior."""
        total = 0.0
        for error, weight in zip(errors, self.weights, strict=True):
            size = abs(error)
            total += weight * (size**2 / 2 if size <= _HUBER else _HUBER * (size - _HUBER / 2))
        for value, first, name in zip(point, self.origin(), self.names, strict=True):
            total += ((value - first) * _NOISE / RANGES[name].spread) ** 2 / 2
        return total

    def slope(self, point: Sequence[float], here: Sequence[float]) -> tuple[list[list[float]], list[float]]:
        """Return the Gauss-Newton matrix and the negative gradient."""
        columns: list[list[float]] = []
        for index in range(len(self.names)):
            shifted = [value + (_DIFFERENCE if index == place else 0.0) for place, value in enumerate(point)]
            columns.append([(there - now) / _DIFFERENCE for there, now in zip(self.errors(shifted), here, strict=True)])
        weights = [w * min(1.0, _HUBER / max(abs(e), 1e-12)) for w, e in zip(self.weights, here, strict=True)]
        matrix = [[math.fsum(map(_product, weights, one, two)) for two in columns] for one in columns]
        downhill = [-math.fsum(map(_product, weights, column, here)) for column in columns]
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
    for _ in range(_MAX_ROUNDS):
        matrix, downhill = problem.slope(point, here)
        gained = 0.0
        while damping < _MAX_DAMPING and not gained:
            damped = [[v * (1 + damping) if i == j else v for j, v in enumerate(line)] for i, line in enumerate(matrix)]
            steps = _solve(damped, downhill)
            trial = [_within(name, p + d) for name, p, d in zip(names, point, steps, strict=True)]
            there = problem.errors(trial)
            lower = problem.cost(there, trial)
            if lower < cost:
                gained = cost - lower
                point, here, cost, damping = trial, there, lower, damping / 5
            else:
                damping *= 4
        if gained <= _TOLERANCE * cost:
            break
    return _at(start, names, point)


def _weights(rows: Sequence[Row]) -> list[float]:
    """Weight each row by the inverse square root of its stack's number of rows, because rows of one stack correlate."""
    counts = Counter(row.stack for row in rows)
    weights = [counts[row.stack] ** -0.5 for row in rows]
    return [weight * len(rows) / sum(weights) for weight in weights]


def _at(start: Constants, names: Sequence[str], point: Sequence[float]) -> Constants:
    return Constants(**{**asdict(start), **{n: math.exp(v) for n, v in zip(names, point, strict=True)}})


def _within(name: str, value: float) -> float:
    return min(math.log(RANGES[name].high), max(math.log(RANGES[name].low), value))


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve a linear system by Gaussian elimination with partial pivoting."""
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
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Fit the planner's constants to measured rows.")
    parser.add_argument("train", type=Path, metavar="TRAIN.csv")
    parser.add_argument("--out", type=Path, required=True, metavar="C", help="output file (JSON)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with arguments.train.open(newline="") as lines:
        for number, columns in enumerate(csv.DictReader(lines), start=1):
            try:
                rows.append(read_row(columns))
            except RowError as error:
                print(f"row {number} is skipped: {error}", file=sys.stderr)
    full = [row for row in rows if row.full]
    arguments.out.write_text(fit(full).to_json())
    print(f"fitted to {len(full)} rows; skipped {len(rows) - len(full)} rows without complete information")


if __name__ == "__main__":
    main()
