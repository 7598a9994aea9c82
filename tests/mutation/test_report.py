"""The score counts what tests noticed; a run fails below the limit, and for each survivor without a reason."""

from tests.mutation.mutants import Mutant
from tests.mutation.report import Explanation, Report, Verdict, summary

MUTANTS = [Mutant("workers/state/x.py", f"line {number}", "core/AddNot") for number in range(20)]


def report(survivors: int, lost: int = 0, explained: int = 0, *, are_equivalent: bool = False) -> Report:
    verdicts = dict.fromkeys(MUTANTS, Verdict.KILLED)
    verdicts.update(dict.fromkeys(MUTANTS[:survivors], Verdict.SURVIVED))
    verdicts.update(dict.fromkeys(MUTANTS[20 - lost :], Verdict.LOST))
    return Report(verdicts, dict.fromkeys(MUTANTS[:explained], Explanation("No input reaches it.", are_equivalent)))


def test_an_explained_survivor_counts_without_being_a_fault() -> None:
    assert report(2, explained=2).faults == []
    assert report(2, explained=2).score == 0.9
    assert report(3, explained=3).faults == ["the score is 0.85, below 0.9"]


def test_an_equivalent_mutant_does_not_count_unless_it_was_noticed() -> None:
    three = report(3, explained=3, are_equivalent=True)
    assert (three.faults, three.score) == ([], 1.0)
    assert report(1, explained=3, are_equivalent=True).score == 1.0
    assert report(4, explained=3, are_equivalent=True).score == 16 / 17


def test_a_survivor_without_a_reason_is_a_fault() -> None:
    assert report(1).faults == ["survived: workers/state/x.py: line 0  [AddNot]"]


def test_lost_lines_do_not_count_and_are_a_fault_when_they_are_many() -> None:
    assert (report(0, lost=2).score, report(0, lost=2).faults) == (1.0, [])
    (fault,) = report(0, lost=3).faults
    assert "3 of 20 lines are gone" in fault
    assert "--resample" in fault
    assert report(0, lost=20).score == 0.0


def test_mutants_that_time_out_are_noticed() -> None:
    verdicts = {MUTANTS[0]: Verdict.TIMED_OUT}
    assert Report(verdicts, {}).score == 1.0


def test_the_summary_names_folders_survivors_and_reasons_out_of_date() -> None:
    lines = list(summary(report(1, lost=1, explained=2)))
    assert lines[0] == "workers/state: 18 killed, 1 survived, 1 lost"
    assert "line is gone: workers/state/x.py: line 19  [AddNot]" in lines
    assert "survived, explained: workers/state/x.py: line 0  [AddNot]" in lines
    assert "explained in survivors.toml, but killed: workers/state/x.py: line 1  [AddNot]" in lines
    assert lines[-1] == "mutation score 0.95 of 19 mutants, 0 of them equivalent"
    assert "survived, equivalent: workers/state/x.py: line 0  [AddNot]" in summary(
        report(1, explained=1, are_equivalent=True)
    )
