"""Ctrl-C while a command follows a job: the command ends, the job continues, and a message states the next commands."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.output import exit_with, print_message

if TYPE_CHECKING:
    from regroup.api.schemas.jobs import JobSummary


@contextmanager
def continuing(job: "JobSummary") -> Generator[None]:
    """Turn Ctrl-C in the block into a message that `job` continues, and exit code 130."""
    with stating(continuation_text(job)):
        yield


@contextmanager
def stating(text: str) -> Generator[None]:
    """Print `text` after Ctrl-C in the block, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print_message(f"\n{text}")
        exit_with(exit_codes.INTERRUPTED)


def continuation_text(job: "JobSummary") -> str:
    """Return the message for a job that continues, with the commands that watch and cancel it."""
    if job.state.is_terminal:
        return f"job {job.name} has ended: {job.state}"
    reference = job.name if job.project == "default" else job.id
    return f"job {job.name} continues: `regroup watch {reference}` shows it, `regroup cancel {reference}` ends it"
