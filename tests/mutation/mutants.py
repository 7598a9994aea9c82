"""Mutants of a module: where they are, and the source with one of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation.operators import NAMES, is_notation, operator


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one line. Its location survives edits of other lines."""

    module: str
    """Path below the root of the tree."""
    line: str
    """Text of the line, without indentation."""
    operator: str
    nth: int = 1
    """Number of the line among the module's lines with this text, from 1."""
    place: int = 1
    """Number of the place among those on the line that the operator can change, from 1."""

    def __str__(self) -> str:
        more = "".join(
            f", {name} {number}" for name, number in (("line", self.nth), ("place", self.place)) if number > 1
        )
        return f"{self.module}: {self.line}  [{self.operator.partition('/')[2]}{more}]"


def mutants_of(module: str, source: str) -> dict[Mutant, int]:
    """Return each mutant of a module with its occurrence, which is the number that cosmic-ray knows it by."""
    found: dict[Mutant, int] = {}
    lines = source.splitlines()
    nth_of = list(_nth_of_lines(lines))
    nodes = list(ast_nodes(get_ast(source)))
    for name in NAMES:
        changes = operator(name)
        positions = [(node, position) for node in nodes for position in changes.mutation_positions(node)]
        places: Counter[int] = Counter()
        for occurrence, (node, ((number, _), _)) in enumerate(positions):
            if is_notation(node):
                continue
            places[number] += 1
            found[Mutant(module, lines[number - 1].strip(), name, nth_of[number - 1], places[number])] = occurrence
    return found


def source_with(mutant: Mutant, source: str) -> str:
    """Return the module's source with the mutant; raise LookupError if its line is gone."""
    occurrence = mutants_of(mutant.module, source).get(mutant)
    if occurrence is None:
        raise LookupError(f"{mutant}: the module has no such line any more")
    changed = mutate_code(source, operator(mutant.operator), occurrence)
    assert changed is not None, mutant
    return changed


def _nth_of_lines(lines: list[str]) -> Iterator[int]:
    seen: Counter[str] = Counter()
    for line in lines:
        seen[line.strip()] += 1
        yield seen[line.strip()]
