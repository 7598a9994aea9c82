"""Size ladder: the legal layouts of a job, in a number that does not grow with the range of its degrees."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from regroup.service.domain.layout import Layout
from regroup.service.spec.layout import LayoutSpec
from regroup.service.spec.layout_rules import NO_MODEL, LayoutCandidate, ModelSizes, find_violations
from regroup.service.spec.training import Training

DENSE_DEGREES = 128
"""Degrees up to this one are all on the ladder of a large range. Larger neighbours differ by 1.6 % at most."""
_SEARCHED = 64
"""Number of neighbours of a degree that are searched for a legal one."""


@dataclass(frozen=True)
class LadderRules:
    """All fields of a spec that determine which layouts are legal."""

    layout: LayoutSpec
    training: Training | None
    model: ModelSizes | None
    """Sizes of a built-in model; None for user code."""

    def violations(self, dp: int, micro_batch: int | None = None) -> list[str]:
        """Return a message for each layout rule that is violated at this data-parallel degree.

        Args:
            dp: data-parallel degree.
            micro_batch: samples per forward; that of the spec if None.
        """
        if self.training is None:
            return []
        samples = self.training.samples_at(dp, self.layout.dp.target)
        micro_batches = samples // (micro_batch or self.training.micro_batch)
        return find_violations(LayoutCandidate(dp=dp, micro_batches=micro_batches, **self._constant_fields))

    @property
    def _constant_fields(self) -> Mapping[str, Any]:
        assert self.training is not None
        sections = cast(tuple[Any, Any], (self.layout, self.training))  # frozen models are hashable
        return _constant_fields(*sections, self.model)

    def legal_layouts(self, dp: int) -> Iterator[Layout]:
        """Yield the legal layouts at a data-parallel degree, those with the largest micro-batch first.

        The first has the micro-batch of the spec. Smaller micro-batches follow if they change a result only by the
        order of its sums. Yields nothing if the ranks do not form whole copies of the parameters.
        """
        if dp % (self.layout.dp_shard or 1):
            return
        whole = self.layout.layout_at(dp)
        if not self.violations(dp):
            yield whole
        for smaller in self._smaller_micro_batches:
            if not self.violations(dp, smaller):
                yield replace(whole, micro_batch=smaller)

    @property
    def _smaller_micro_batches(self) -> list[int]:
        training = self.training
        if training is None or training.batch != "fixed" or self.model is None:
            return []
        if self.model.norm_over is not None:
            return []  # batch normalization depends on the samples of a micro-batch
        return find_divisors(training.micro_batch)[-2::-1]

    @property
    def candidates(self) -> list[int]:
        """Data-parallel degrees to consider, in ascending order: the ends of the range, the target, the divisors of the
        number of micro-batches, and regular steps between them."""
        dp, group = self.layout.dp, self.layout.dp_shard or 1
        found = {dp.min, dp.target, dp.max, *find_degrees(dp.min, dp.max, group)}
        if self.training is not None:
            found |= set(find_divisors(self.training.global_batch // self.training.micro_batch))
        return sorted(degree for degree in found if dp.min <= degree <= dp.max and degree % group == 0)


def find_ladder(rules: LadderRules) -> tuple[Layout, ...]:
    """Return the legal layouts from the smallest to the largest size."""
    return _find_ladder(rules)


@lru_cache(maxsize=256)
def _find_ladder(rules: LadderRules) -> tuple[Layout, ...]:
    sizes = (next(rules.legal_layouts(dp), None) for dp in rules.candidates)
    return tuple(layout for layout in sizes if layout is not None)


def describe_violations(rules: LadderRules) -> str:
    """Return why the target or the ends of the range are illegal, with legal neighbours; empty if they are legal."""
    return _describe_violations(rules)


# Most specs of a team have the same layout, and the rules take longer than the rest of the validation.
@lru_cache(maxsize=1024)
def _describe_violations(rules: LadderRules) -> str:
    dp = rules.layout.dp
    found = {dp.target: rules.violations(dp.target)}
    found |= {end: rules.violations(end) for end in (dp.min, dp.max) if next(rules.legal_layouts(end), None) is None}
    if not (messages := list(dict.fromkeys(message for each in found.values() for message in each))):
        return ""
    illegal = next(degree for degree, each in found.items() if each)
    return "; ".join(messages) + describe_nearest_degrees(rules, illegal)


@lru_cache(maxsize=256)
def _constant_fields(layout: LayoutSpec, training: Training, model: ModelSizes | None) -> Mapping[str, Any]:
    """Return the fields of a candidate that do not depend on its degree."""
    return {
        "stages": layout.stages,
        "activation_checkpointing": training.activation_checkpointing,
        "precision": training.precision,
        "reduce": training.reduce,
        "compile": training.compile,
        "sequence": training.sequence or 1,
        "model": model or NO_MODEL,
        **layout.model_dump(exclude={"dp", "auto"}),
    }


def find_degrees(smallest: int, largest: int, group: int = 1) -> list[int]:
    """Return multiples of `group` in a range: all if there are few; else the multiples of powers of two that grow with
    the degree, from `DENSE_DEGREES` multiples on."""
    first, last = -(-smallest // group), largest // group
    if last - first <= 2 * DENSE_DEGREES:
        return [at * group for at in range(first, last + 1)]
    found, at = list[int](), first
    while at <= last:
        found.append(at * group)
        step = 1 << (at // DENSE_DEGREES).bit_length()
        at = at // step * step + step
    return found


def find_divisors(number: int) -> list[int]:
    """Return the divisors of a number in ascending order, in the time of its square root."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def find_nearest_degrees(degree: int, is_legal: Callable[[int], bool], further: list[int]) -> tuple[int, ...]:
    """Return the nearest legal data-parallel degrees below and above an illegal one, at most one of each.

    Args:
        degree: the illegal degree.
        is_legal: returns whether a degree is legal.
        further: degrees to try in addition to `_SEARCHED` neighbours on each side.
    """
    tried = {*further, *range(max(1, degree - _SEARCHED), degree + _SEARCHED + 1)}
    below = next((other for other in sorted(tried, reverse=True) if other < degree and is_legal(other)), None)
    above = next((other for other in sorted(tried) if other > degree and is_legal(other)), None)
    return tuple(other for other in (below, above) if other is not None)


def describe_nearest_degrees(rules: LadderRules, degree: int) -> str:
    """Return the end of a message about an illegal degree, with its legal neighbours; empty if there are none."""
    training, group = rules.training, rules.layout.dp_shard or 1
    count = 1 if training is None else training.global_batch // training.micro_batch
    around = [degree // group * group, -(-degree // group) * group]
    further = [*find_divisors(count), *find_degrees(1, 2 * degree, group), *around]
    further = [other for other in further if 1 <= other <= 2 * degree + _SEARCHED]
    found = find_nearest_degrees(degree, lambda other: not rules.violations(other), further)
    return f"; legal sizes near layout.dp={degree}: {' and '.join(map(str, found))}" if found else ""
