"""The live screen of a job: converts its view to rich renderables. Pure."""

import math

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regroup.api.live.braille_plot import plot
from regroup.api.live.formatting import duration, layout_text, number
from regroup.api.live.job_view import INCIDENT_PHASES, Incident, JobView, Rank, step_text
from regroup.api.live.predictions import format_comparisons

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


def screen(view: JobView, *, now_s: float, width: int) -> RenderableType:
    """Render the screen for a terminal with a width of `width` characters."""
    parts: list[RenderableType] = [_title(view), _progress(view)]
    left = max(40, int(width * 0.58))
    body = Table.grid(expand=True, padding=(0, 1))
    body.add_column(width=left)
    body.add_column(ratio=1)
    body.add_row(_curve(view, left), _board(view))
    parts.append(body)
    if view.incidents:
        parts.append(Panel(_incidents(view, now_s), title="incidents", title_align="left", border_style="red"))
    if view.error:
        parts.append(Text(f"{view.error.get('kind', 'error')}: {view.error.get('message', '')}", style="red"))
    return Group(*parts)


def _title(view: JobView) -> RenderableType:
    row = Table.grid(expand=True)
    row.add_column()
    row.add_column(justify="right")
    state = Text(view.state, style=_STATE_STYLE.get(view.state, "yellow"))
    doing = "" if view.is_over else view.activity
    detail = " · ".join(part for part in (view.reason if view.is_over or view.state == "QUEUED" else "", doing) if part)
    if detail:
        state.append(f"  {detail}", style="dim")
    row.add_row(Text.assemble((view.name, "bold"), "  ", (view.job_id, "dim")), state)
    return row


def _progress(view: JobView) -> RenderableType:
    row = Table.grid(expand=True, padding=(0, 2))
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    facts = [step_text(view.step, view.steps_total)]
    if view.eta_s is not None:
        facts.append(f"{duration(view.eta_s)} left")
    if view.tokens_per_s is not None:
        facts.append(f"{number(view.tokens_per_s)} tokens/s")
    if view.mfu is not None:
        facts.append(f"MFU {view.mfu:.0%}")
    if view.prediction is not None:
        facts += format_comparisons(view.prediction)[:1]
    if view.generation:
        facts += [layout_text(dict(view.layout)), f"generation {view.generation}"]
    total = None if view.steps_total is None else max(1, view.steps_total)
    row.add_row(ProgressBar(total=total, completed=view.step), Text(" · ".join(facts)))
    return row


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


def _board(view: JobView) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    nodes = dict.fromkeys(rank.node for rank in view.ranks)
    for node in nodes:
        grid.add_row(Text(node, style="bold", no_wrap=True), *[_cell(rank) for rank in view.ranks if rank.node == node])
    content: RenderableType = grid if nodes else Text("no nodes yet", style="dim")
    return Panel(content, title="nodes × ranks", title_align="left", border_style="dim")


def _cell(rank: Rank) -> Text:
    if rank.phase == "dead":
        return Text(f"✖ {rank.rank} dead", style="bold white on red")
    style = "green" if rank.is_alive else "yellow" if rank.phase == "joining" else "dim"
    return Text(f"{'■' if rank.is_alive else '□'} {rank.rank} {rank.phase}", style=style, no_wrap=True)


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
