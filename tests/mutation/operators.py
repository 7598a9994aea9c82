"""The mutations that are tried: operators of cosmic-ray, and one of our own."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import parso
from cosmic_ray import plugins
from cosmic_ray.operators.operator import Example, Operator

REMOVE_CALL = "regroup/RemoveCall"

NAMES = (
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Mod_FloorDiv", "Pow_Mul", "LShift_RShift")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    "core/AddNot",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceUnaryOperator_Delete_USub",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/NumberReplacer",
    "core/RemoveDecorator",
    "core/ZeroIterationForLoop",
    REMOVE_CALL,
)
"""One replacement for each operator. More of them (`+` by `**`) fail at once and say nothing about the tests."""


_LARGE = 1000
_UNPACKING = (
    "parameters",
    "typedargslist",
    "lambdef",
    "varargslist",
    "dictorsetmaker",
    "testlist_comp",
    "arglist",
    "atom",
)
"""Nodes in which `*` and `**` are not operators; cosmic-ray knows only some of these."""


class RemoveCall(Operator):
    """Replace a statement that is only a call, which matters by its effect, by `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if _is_call(node):
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        return parso.parse(f"{node.get_first_leaf().prefix}pass")

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("if x:\n    f(y)\n", "if x:\n    pass\n"),)


def operator(name: str) -> Operator:
    """Return an operator by its name."""
    return RemoveCall() if name == REMOVE_CALL else plugins.get_operator(name)()


def is_notation(node: Any) -> bool:
    """Tell whether a change of this node is one of the notation, not of the program.

    A `*` or `**` in a signature or a literal is not an operator. The options of a dataclass restrict who writes the
    program; frozen or not, it computes the same. One more or less does not matter for a large number.
    """
    if node.type == "number" and abs(complex(ast.literal_eval(node.value))) >= _LARGE:
        return True
    if node.type == "operator" and node.parent.type in _UNPACKING:
        return True
    while node is not None and node.type != "decorator":
        node = node.parent
    return node is not None and node.get_code().strip().startswith("@dataclass")


def _is_call(node: Any) -> bool:
    if node.type != "atom_expr" or node.parent is None or node.parent.type != "simple_stmt":
        return False
    last = node.children[-1]
    return last.type == "trailer" and last.children[0].value == "("
