"""The output of a notebook cell."""

from dataclasses import replace
from typing import Any

import IPython.display
import pytest

from regroup.api.client.notebook import NotebookCell, is_notebook, render
from regroup.api.live.job_view import Incident, JobView, Step

VIEW = JobView(
    "j1", "spirals", 10, state="RUNNING", generation=1, steps=tuple(Step(n, 1, n, 1 / n, 8) for n in range(1, 6))
)


def test_the_screen_is_rendered_as_html_and_text() -> None:
    incident = Incident("i1", "SIGKILL", 1, 3, {"fault_s": 1.0, "first_step_s": 1.5}, steps_lost=0)
    bundle = render(replace(VIEW, incidents=(incident,)), now_s=10.0)
    assert "step 5/10" in bundle["text/plain"] and "recovered in 0.5 s, 0 steps lost" in bundle["text/plain"]
    assert bundle["text/html"].startswith("<pre") and "<span style=" in bundle["text/html"]
    assert "loss 0.2" in bundle["text/html"]


def test_a_cell_updates_one_output_and_the_last_view_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, bundle: dict[str, str], *, raw: bool) -> None:
            shown.append(bundle)

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert not shown, "one output"
        shown.append(bundle)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    with NotebookCell() as cell:
        for number in range(50):
            cell.show(replace(VIEW, name=f"view-{number}"))
    assert len(shown) < 50, "not every step is drawn"
    assert "view-0 " in shown[0]["text/plain"] and "view-49 " in shown[-1]["text/plain"]


def test_the_test_process_is_not_a_notebook() -> None:
    assert not is_notebook()
