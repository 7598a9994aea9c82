"""Texts of the errors that name invalid fields."""

from regroup.service.domain.errors import FieldIssue, SpecError


def test_an_issue_shows_the_invalid_value() -> None:
    assert str(FieldIssue("training.steps", "must be positive", 0)) == "training.steps: must be positive (got 0)"


def test_an_issue_without_a_value_shows_only_path_and_message() -> None:
    error = SpecError([FieldIssue("name", "is required"), FieldIssue("layout.dp", "is empty", "")])
    assert str(error) == "name: is required; layout.dp: is empty (got '')"
