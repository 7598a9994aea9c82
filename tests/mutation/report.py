"""Verdicts, the score, and the summary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.mutation.modules import FOLDERS, folder_of
from tests.mutation.mutants import Mutant

LOWEST_SCORE = 0.9
MOST_LOST = 0.1
"""Share of the sample whose lines may be gone before it must be drawn again."""


class Verdict(StrEnum):
    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    LOST = "lost"
    """The line is gone."""


@dataclass(frozen=True)
class Explanation:
    """Reason for which a mutant survives."""

    reason: str
    is_equivalent: bool
    """True if no program can tell the mutant from the original. Such a mutant does not count."""


@dataclass(frozen=True)
class Report:
    """The verdicts of a run, and the explained survivors."""

    verdicts: Mapping[Mutant, Verdict]
    explanations: Mapping[Mutant, Explanation]

    @property
    def score(self) -> float:
        """Share of the mutants that tests noticed, among those that are not equivalent to the original."""
        noticed = len(self.of(Verdict.KILLED)) + len(self.of(Verdict.TIMED_OUT))
        survived = len(self.of(Verdict.SURVIVED)) - len(self.equivalent)
        return noticed / (noticed + survived) if noticed + survived else 0.0

    @property
    def equivalent(self) -> Sequence[Mutant]:
        """Survivors that no test can notice."""
        explained = self.explanations
        return [each for each in self.of(Verdict.SURVIVED) if each in explained and explained[each].is_equivalent]

    @property
    def faults(self) -> list[str]:
        """Reasons for which the run fails."""
        found = [f"survived: {mutant}" for mutant in self.of(Verdict.SURVIVED) if mutant not in self.explanations]
        if self.score < LOWEST_SCORE:
            found.append(f"the score is {self.score:.2f}, below {LOWEST_SCORE}")
        lost = self.of(Verdict.LOST)
        if len(lost) > MOST_LOST * len(self.verdicts):
            found.append(
                f"{len(lost)} of {len(self.verdicts)} lines are gone: "
                "draw others with `python -m tests.mutation --resample`"
            )
        return found

    def of(self, verdict: Verdict) -> Sequence[Mutant]:
        """Return the mutants with a verdict."""
        return [mutant for mutant, found in self.verdicts.items() if found is verdict]


def summary(report: Report) -> Iterator[str]:
    """Describe the result, line by line."""
    for folder in FOLDERS:
        mine = [verdict for mutant, verdict in report.verdicts.items() if folder_of(mutant.module) == folder]
        if mine:
            counts = ", ".join(f"{mine.count(verdict)} {verdict}" for verdict in Verdict if verdict in mine)
            yield f"{folder}: {counts}"
    for mutant in report.of(Verdict.LOST):
        yield f"line is gone: {mutant}"
    for mutant in report.of(Verdict.SURVIVED):
        if mutant in report.explanations:
            kind = "equivalent" if report.explanations[mutant].is_equivalent else "explained"
            yield f"survived, {kind}: {mutant}"
    for mutant, verdict in report.verdicts.items():
        if mutant in report.explanations and verdict in (Verdict.KILLED, Verdict.TIMED_OUT):
            yield f"explained in survivors.toml, but {verdict}: {mutant}"
    yield from report.faults
    tried = len(report.verdicts) - len(report.of(Verdict.LOST))
    yield f"mutation score {report.score:.2f} of {tried} mutants, {len(report.equivalent)} of them equivalent"
