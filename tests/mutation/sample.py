"""The fixed sample of mutants, and the list of explained survivors."""

import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mutation.modules import folder_of
from tests.mutation.mutants import Mutant
from tests.mutation.report import Explanation

SAMPLE = Path(__file__).with_name("sample.toml")
SURVIVORS = Path(__file__).with_name("survivors.toml")
SEED = 24
SIZES = {"workers/parallel": 28, "workers/train": 8, "workers/state": 28, "service/policy": 36}
"""Mutants of each folder."""

_HEAD = """# The mutants that `make mutation` tries. `python -m tests.mutation --resample` writes this file. It keeps
# the mutants whose lines exist, and draws others for those whose lines are gone.
"""


def sample(path: Path = SAMPLE) -> list[Mutant]:
    """Read the sample."""
    return [_mutant(row) for row in tomllib.loads(path.read_text())["mutant"]]


def explanations() -> dict[Mutant, Explanation]:
    """Read why mutants survive that no test can or should notice."""
    rows = tomllib.loads(SURVIVORS.read_text()).get("survivor", [])
    return {_mutant(row): Explanation(row["reason"], row["equivalent"]) for row in rows}


def draw(
    candidates: Iterable[Mutant], present: Iterable[Mutant] = (), sizes: Mapping[str, int] = SIZES, seed: int = SEED
) -> list[Mutant]:
    """Draw a sample of the sizes, in turn from each module of a folder; keep those of `present` that exist."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in sorted(candidates):
        by_module.setdefault(mutant.module, []).append(mutant)
    kept = [mutant for mutant in present if mutant in by_module.get(mutant.module, ())]
    drawn: list[Mutant] = []
    for folder, size in sizes.items():
        mine = [mutant for mutant in kept if folder_of(mutant.module) == folder][:size]
        taken = Counter(mutant.module for mutant in mine)
        rest = {
            module: _shuffled([mutant for mutant in found if mutant not in mine], f"{seed} {module}")
            for module, found in by_module.items()
            if folder_of(module) == folder
        }
        order = _shuffled(sorted(rest), f"{seed} {folder}")
        while len(mine) < size and any(rest.values()):
            module = min((module for module in order if rest[module]), key=lambda module: taken[module])
            mine.append(rest[module].pop())
            taken[module] += 1
        drawn += mine
    return sorted(drawn)


def write_sample(mutants: Sequence[Mutant], path: Path = SAMPLE) -> None:
    """Write the sample."""
    path.write_text(_HEAD + "".join(f"\n[[mutant]]\n{_row(mutant)}" for mutant in mutants))


def _mutant(row: dict[str, Any]) -> Mutant:
    mutant = Mutant(row["module"], row["line"], row["operator"])
    return replace(mutant, **{key: value for key, value in row.items() if key in ("nth", "place")})


def _row(mutant: Mutant) -> str:
    # A TOML basic string is written as a JSON string is.
    texts = {"module": mutant.module, "line": mutant.line, "operator": mutant.operator}
    numbers = {name: number for name, number in (("nth", mutant.nth), ("place", mutant.place)) if number > 1}
    written = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in {**texts, **numbers}.items())
    return "".join(written)


def _shuffled(items: list[Any], seed: str) -> list[Any]:
    random.Random(seed).shuffle(items)
    return items
