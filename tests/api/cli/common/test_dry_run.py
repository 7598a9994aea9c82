"""`regroup --dry-run VERB` with a real server: the result is printed, and nothing has changed."""

from typing import Any

import pytest

_NOTE = "dry run: the server accepts the request; nothing was changed"


def test_a_dry_run_of_a_cancel_changes_nothing(cli: Any, job: str) -> None:
    tried = cli("--dry-run", "cancel", job)
    assert tried.code == 0 and tried.out == f"{job} CANCELLED\n" and _NOTE in tried.err
    assert cli("get", job, "--json").json["state"] == "QUEUED"
    made = cli("cancel", job)
    assert made.out == tried.out and _NOTE not in made.err


def test_a_dry_run_of_a_submission_stores_no_job(cli: Any, spec: Any) -> None:
    tried = cli("--dry-run", "submit", spec)
    assert tried.code == 0 and _NOTE in tried.err and "watch it" not in tried.err
    assert cli("get", tried.out.strip()).code != 0


def test_an_invalid_request_fails_in_a_dry_run_as_without(cli: Any) -> None:
    tried, made = cli("--dry-run", "cancel", "nothing"), cli("cancel", "nothing")
    assert tried.code == made.code != 0 and tried.err == made.err


@pytest.mark.parametrize("words", [("run", "train.py"), ("watch", "gpt"), ("jobs",), ("exec", "gpt", "--", "ls")])
def test_verbs_without_a_dry_run_list_those_with_one(cli: Any, words: tuple[str, ...]) -> None:
    refused = cli("--dry-run", *words)
    assert refused.code == 2 and f"{words[0]} has no dry run" in refused.err


def test_a_dry_run_waits_for_nothing(cli: Any, spec: Any) -> None:
    refused = cli("--dry-run", "submit", spec, "--wait")
    assert refused.code == 2 and "a dry run changes nothing that the command could wait for" in refused.err
