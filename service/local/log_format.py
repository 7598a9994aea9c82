"""The format of the server's log: tracebacks have no local variables, because these may be secrets."""

import os
import sys

import structlog


def hide_variables() -> None:
    """Let the log show tracebacks without local variables. By default, it shows them if Rich is installed."""
    *before, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
        exception_formatter=structlog.dev.plain_traceback,
    )
    structlog.configure(processors=[*before, renderer])
