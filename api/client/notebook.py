"""The screen of `regroup watch` as the output of a notebook cell, which is updated in place."""

import io
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console

from regroup.api.live.job_view import JobView
from regroup.api.live.output import OutputSource
from regroup.api.live.screen import screen

_WIDTH = 110
"""Width in characters, small enough that a common notebook does not wrap lines."""
_INTERVAL_S = 0.25
_CODE = "<pre style=\"line-height:1.2;font-family:Menlo,'DejaVu Sans Mono',consolas,monospace\">{code}</pre>"


def is_notebook() -> bool:
    """Return True if this process is a notebook kernel, whose cells can show HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class NotebookCell(AbstractContextManager["NotebookCell"]):
    """The output of the current cell."""

    def __init__(self) -> None:
        self._view: JobView | None = None
        self._display: Any = None
        self._rendered_s = 0.0

    def __exit__(self, *error: Any) -> None:
        self._render()

    def show(self, view: JobView) -> None:
        """Show `view`, at most four times per second. The last view remains."""
        self._view = view
        if time.monotonic() - self._rendered_s >= _INTERVAL_S:
            self._render()

    def write(self, source: OutputSource, text: str) -> None:
        """Print more output of a rank below the screen."""
        print(text, end="")

    def _render(self) -> None:
        from IPython.display import display

        if self._view is None:
            return
        bundle = render(self._view, now_s=time.time())
        if self._display is None:
            self._display = display(bundle, raw=True, display_id=True)
        else:
            self._display.update(bundle, raw=True)
        self._rendered_s = time.monotonic()


def render(view: JobView, *, now_s: float) -> dict[str, str]:
    """Render the screen by MIME type: HTML with colours, and plain text."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False)
    console.print(screen(view, now_s=now_s, width=_WIDTH))
    return {
        "text/html": console.export_html(inline_styles=True, code_format=_CODE, clear=False),
        "text/plain": console.export_text(),
    }
