"""Links to pages of the console lead nowhere else."""

import pytest

from regroup.api.web.console.links import MAX_LENGTH, is_page


@pytest.mark.parametrize(
    "page",
    [
        "", "jobs", "jobs/", "jobs/0190-ab/story", "jobs?filter=state:RUNNING%20project:vision", "jobs/a/logs?line=1,2",
        "projects/vision%20a", "nodes/n..0", "jobs?next=../x",
    ],
)  # fmt: skip
def test_pages_of_the_console_are_pages(page: str) -> None:
    assert is_page(page)


@pytest.mark.parametrize(
    "page",
    [
        "/", "//evil.example", "/jobs", "../v1/jobs", "jobs/../../v1/jobs", "jobs/./x", "jobs//x", "..", ".",
        "%2e%2e/v1", "jobs/%2E%2E/%2e%2e/docs", "jobs/%252e%252e", "\\\\evil.example", "jobs\\..", "jobs/%5c..",
        "%2f%2fevil.example", "jobs\n", 'jobs"', "jobs<script>", "jobs#x", "jobs é", "a" * (MAX_LENGTH + 1),
    ],
)  # fmt: skip
def test_everything_else_is_refused(page: str) -> None:
    assert not is_page(page)
