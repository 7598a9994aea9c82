"""Tracebacks in the server's log have no local variables."""

from collections.abc import Iterator

import pytest
import structlog

from regroup.service.local.log_format import hide_variables


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def log_a_failure() -> None:
    value = "hunter2-" + "4f1d09c6"
    try:
        raise RuntimeError(f"a fault with {len(value)} characters")
    except RuntimeError as error:
        structlog.get_logger("test").error("a request failed", job="job_1", exc_info=error)


def test_a_traceback_shows_no_variables(capsys: pytest.CaptureFixture[str]) -> None:
    log_a_failure()
    assert "hunter2-4f1d09c6" in capsys.readouterr().out, "the default shows them, so the check below can fail"
    hide_variables()
    log_a_failure()
    shown = capsys.readouterr().out
    assert "hunter2" not in shown.replace('value = "hunter2-" +', "")
    assert "a request failed" in shown and "job=job_1" in shown and "RuntimeError: a fault with 16 characters" in shown
    assert "log_a_failure" in shown, "the place of the fault"
