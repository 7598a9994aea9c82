"""Generated pages are current."""

import re
from pathlib import Path

from regroup.api.cli.common import exit_codes
from regroup.api.cli.docs import cli_reference, spec_reference
from regroup.api.cli.main import VERBS
from regroup.service.spec.job import JobSpec

DOCS = Path(__file__).parents[4] / "docs"


def test_job_spec_page_is_current() -> None:
    rewrite = "python -m regroup.api.cli.docs.spec_reference > docs/job-spec.md"
    assert (DOCS / "job-spec.md").read_text() == spec_reference.render(), rewrite


def test_every_field_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(.+?)` \|.*\| (.*?) ?\|$", spec_reference.render(), re.MULTILINE)
    assert len(rows) > 70
    assert [field for field, meaning in rows if not meaning.strip()] == []
    assert set(JobSpec.model_fields) <= {field for field, _ in rows}


def test_command_line_page_is_current() -> None:
    assert (DOCS / "cli.md").read_text() == cli_reference.render(), "run make docs"


def test_the_command_line_page_has_all_commands_and_exit_codes() -> None:
    page = cli_reference.render()
    assert all(
        f"### `regroup {verb.__name__.replace('_', '-')} [OPTIONS]" in page for _, verbs in VERBS for verb in verbs
    )
    assert all(f"| {code} | " in page for code in exit_codes.MEANINGS)
