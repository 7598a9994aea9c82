"""The live screen of a job: converts its view to rich renderables. Pure."""

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regroup.api.live.braille_plot import plot
from regroup.api.live.formatting import duration, number
from regroup.api.live.job_view import INCIDENT_PHASES, Incident, JobView, Rank, step_text
from regroup.api.live.predictions import format_measured

_STATE_STYLE = {
    "SUCCEEDED": "bold green",
    "FAILED": "bold red",
    "CANCELLED": "bold yellow",
    "RUNNING": "green",
    "RECOVERING": "bold red",
}
_PLOT_HEIGHT = 8
_POINTS = 500
"""Number of points of the curve: more than a terminal can resolve, but few enough to draw several times per second."""

_INCIDENTS_SHOWN = 4
_NODES_SHOWN = 12
_TWO_COLUMNS = 100
"""Width of a terminal from which the ranks are next to the curve, not below it."""
_FRAME = 6
"""Characters of a panel's frame and of the spaces around its columns."""
_BAR_WIDTH = 10
"""Smallest width of the progress bar in characters."""


def screen(view: JobView, *, now_s: float, width: int) -> RenderableType:
    """Render the screen for a terminal with a width of `width` characters. The curve appears with the first loss."""
    parts: list[RenderableType] = [_title(view), _progress(view)]
    parts += [Text(line, style="dim") for line in _lines(_figures(view), " · ", width)]
    parts += [Text(view.save, style="dim")] if view.save else []
    if view.has_loss and width < _TWO_COLUMNS:
        parts += [_curve(view, width), _board(view, width)]
    elif view.has_loss:
        left = int(width * 0.58)
        body = Table.grid(expand=True, padding=(0, 1))
        body.add_column(width=left)
        body.add_column(ratio=1)
        body.add_row(_curve(view, left), _board(view, width - left - 2))
        parts.append(body)
    else:
        parts.append(_board(view, width))
    if view.incidents:
        parts.append(Panel(_incidents(view, now_s), title="incidents", title_align="left", border_style="red"))
    if view.error:
        parts.append(Text(f"{view.error.get('kind', 'error')}: {view.error.get('message', '')}", style="red"))
    return Group(*parts)


def _title(view: JobView) -> RenderableType:
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(overflow="fold")
    row.add_column(justify="right", overflow="fold")
    state = Text(view.state, style=_STATE_STYLE.get(view.state, "yellow"))
    doing = "" if view.is_over else view.activity
    detail = " · ".join(part for part in (view.reason if view.is_over or view.state == "QUEUED" else "", doing) if part)
    if detail:
        state.append(f"  {detail}", style="dim")
    row.add_row(Text.assemble((view.name, "bold"), "  ", (view.job_id, "dim")), state)
    return row


def _progress(view: JobView) -> RenderableType:
    """Return the bar, with the step and the remaining time. Other figures have a line of their own."""
    done = step_text(view.step, view.steps_total, is_estimated=view.is_step_estimated)
    left = "" if view.eta_s is None else f" · {duration(view.eta_s)} left"
    if view.steps_total is None or view.is_step_estimated:
        return Text(done + left)  # a bar would show a share that is unknown
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    row.add_column(ratio=1, min_width=_BAR_WIDTH)
    row.add_column(justify="right")
    row.add_row(ProgressBar(total=max(1, view.steps_total), completed=view.step), Text(done + left))
    return row


def _figures(view: JobView) -> list[str]:
    """Return rates, predictions and the size of the job."""
    facts: list[str] = []
    if view.tokens_per_s is not None:
        facts.append(f"{number(view.tokens_per_s)} tokens/s")
    if view.mfu is not None:
        facts.append(f"MFU {view.mfu:.0%}")
    if view.prediction is not None:
        facts += format_measured(view.prediction)[:1]
    if view.generation:
        facts += [view.size, f"generation {view.generation}"]
    return facts


def _lines(parts: Sequence[str], separator: str, width: int) -> list[str]:
    """Join parts to lines of at most `width` characters. No part is cut."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(separator) + len(part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return lines


def _curve(view: JobView, width: int) -> RenderableType:
    marks = [float(incident.at_step) for incident in view.incidents]
    every = max(1, len(view.steps) // _POINTS)
    shown = [*view.steps[:-1:every], *view.steps[-1:]]
    points = [(s.step, s.loss) for s in shown if s.loss is not None]
    lines = plot(points, width=width - 4, height=_PLOT_HEIGHT, x_max=view.steps_total, marks=marks)
    return Panel(Text("\n".join(lines), no_wrap=True), title=loss_line(view), title_align="left", border_style="dim")


def loss_line(view: JobView) -> str:
    """Format the newest losses, e.g. `loss 2.31 · held-out 2.44`."""
    parts = ["loss –" if view.loss is None or math.isnan(view.loss) else f"loss {view.loss:.4g}"]
    if view.validation_loss is not None:
        parts.append(f"held-out {view.validation_loss:.4g}")
    return " · ".join(parts)


def _board(view: JobView, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    nodes = list(dict.fromkeys(rank.node for rank in view.ranks))
    left = width - _FRAME - max((len(node) for node in nodes), default=0)
    for node in nodes[:_NODES_SHOWN]:
        grid.add_row(Text(node, style="bold"), _cells([rank for rank in view.ranks if rank.node == node], left))
    content: RenderableType = grid if nodes else Text("no nodes yet", style="dim")
    hidden = len(nodes) - _NODES_SHOWN
    if hidden > 0:
        content = Group(grid, Text(f"and {hidden} more nodes", style="dim"))
    return Panel(content, title="nodes × ranks", title_align="left", border_style="dim")


def _cells(ranks: Sequence[Rank], width: int) -> Text:
    """Return the ranks of a node, on as many lines as they need."""
    found = Text()
    at = 0
    for rank in ranks:
        cell = _cell(rank)
        separator = "" if not at else " " if at + 1 + len(cell) <= width else "\n"
        at = len(cell) + (at + 1 if separator == " " else 0)
        found.append(separator).append(cell)
    return found


def _cell(rank: Rank) -> Text:
    if rank.phase == "dead":
        return Text(f"✖ {rank.rank} dead", style="bold white on red")
    style = "green" if rank.is_alive else "yellow" if rank.phase == "joining" else "dim"
    return Text(f"{'■' if rank.is_alive else '□'} {rank.rank} {rank.phase}", style=style)


def _incidents(view: JobView, now_s: float) -> RenderableType:
    rows = [_incident(incident, now_s) for incident in view.incidents[-_INCIDENTS_SHOWN:]]
    hidden = len(view.incidents) - len(rows)
    if hidden:
        rows.insert(0, Text(f"{hidden} earlier incidents, see `regroup get --json`", style="dim"))
    return Group(*rows)


def _incident(incident: Incident, now_s: float) -> Text:
    text = Text.assemble((f"{incident.title}  ", "bold"))
    if incident.is_over:
        text.append(incident.summary(), style="bold green")
    else:
        start = min(incident.times.values(), default=now_s)
        text.append(f"{incident.summary()} {duration(max(0.0, now_s - start))}", style="bold red")
    text.append("\n  ")
    for word, key in INCIDENT_PHASES:
        at = incident.elapsed(key)
        text.append(f"{word} {'…' if at is None else duration(at)}  ", style="dim" if at is None else "")
    return text
