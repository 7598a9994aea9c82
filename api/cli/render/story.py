"""The story of a job as text: a bar of its states, then what happened in order. Pure."""

from collections.abc import Iterator

from regroup.api.live.formatting import duration, layout_text
from regroup.api.schemas.story.incident import IncidentDetail
from regroup.api.schemas.story.story import GenerationSpan, Story
from regroup.service.domain.byte_text import bytes_text

_SIGNS = {
    "QUEUED": "·", "PLACING": "·", "STARTING": "▒", "RUNNING": "█", "RECOVERING": "✖", "RESIZING": "↕", "DRAINING": "▒",
    "SUSPENDED": "∥",
}  # fmt: skip
_MAX_STACK_LINES = 12
_MAX_RANKS = 16


def render_story(story: Story, width: int) -> list[str]:
    """Return lines: the states as a bar of `width` characters, a legend, and one line for each event."""
    entries = sorted(_entries(story), key=lambda entry: entry[0])
    times = [(f"+{duration(max(0.0, time_s - story.from_s))}", text) for time_s, text in entries]
    column = max((len(when) for when, _ in times), default=0)
    return [*_bar(story, width), *(f"{when:>{column}}  {text}" for when, text in times)]


def render_incident(detail: IncidentDetail) -> list[str]:
    """Return lines: its course, its cost, the verdict, and the stacks with the outliers first."""
    account, found = detail.account, detail.findings
    lines = [account.summary]
    if account.cost is not None:
        lines.append(f"cost: {duration(account.cost.device_s)} of devices ({account.cost.basis})")
    if (saved := account.without_memory) is not None:
        more = "" if saved.more_s is None else f", {duration(saved.more_s)}"
        lines.append(f"without snapshots in memory: {saved.more_steps} more steps{more}; {saved.basis}")
    lines += [found.verdict] if found.verdict else []
    lines += [f"→ {account.remedy}"] if account.remedy else []
    for rank in [each for each in found.ranks if each.is_outlier] + [
        each for each in found.ranks if not each.is_outlier
    ]:
        if len(lines) > _MAX_RANKS + 5:
            lines.append(f"… {len(found.ranks)} ranks in all")
            break
        end = f", {rank.end}" if rank.end else ""
        mark = "  ← differs" if rank.is_outlier else ""
        lines.append(f"  rank {rank.rank} on {rank.node}: {rank.phase} of step {rank.step}{end}{mark}")
    for group in found.stacks:
        named = ", ".join(str(rank) for rank in group.ranks[:_MAX_RANKS])
        lines.append(f"  stack of rank {named}{' (differs)' if group.is_outlier else ''}:")
        lines += [f"    {line}" for line in group.text.splitlines()[:_MAX_STACK_LINES]]
    lines += [f"  missing: node {name}: {why}" for name, why in found.missing.items()]
    return lines


def _bar(story: Story, width: int) -> list[str]:
    span_s = max(story.until_s - story.from_s, 1e-9)
    signs = [" "] * width
    for state in story.states:
        until_s = story.until_s if state.until_s is None else state.until_s
        first = int((state.from_s - story.from_s) / span_s * width)
        last = int((until_s - story.from_s) / span_s * width)
        for place in range(max(0, first), min(width, max(last, first + 1))):
            signs[place] = _SIGNS.get(state.state, signs[place])
    shown = list(dict.fromkeys(state.state for state in story.states if state.state in _SIGNS))
    legend = "  ".join(f"{_SIGNS[name]} {name}" for name in shown)
    return ["".join(signs).rstrip(), f"{legend}   {duration(span_s)} in all"]


def _entries(story: Story) -> Iterator[tuple[float, str]]:
    for state in story.states:
        reason = f" ({state.reason})" if state.reason else ""
        yield state.from_s, f"{state.state}{reason}{': ' + state.message if state.message else ''}"
    for generation in story.generations:
        yield generation.from_s, _generation(generation)
    for incident in story.incidents:
        yield incident.from_s, f"incident {incident.number}: {incident.summary}"
    for checkpoint in story.checkpoints:
        gone = ", removed since" if checkpoint.removed_at else ""
        yield checkpoint.created_at, f"checkpoint of step {checkpoint.step}, {bytes_text(checkpoint.size_bytes)}{gone}"
    if story.mirrors:
        last = story.mirrors[-1]
        yield last.time_s, f"step {last.step} is in the memory of other nodes, the last of {len(story.mirrors)} mirrors"
    for mark in story.marks:
        yield mark.time_s, f"{mark.text} (by {mark.actor})"


def _generation(each: GenerationSpan) -> str:
    layout = layout_text(each.layout.to_json())
    source = "" if each.restored_from == "nothing" else f", state from {each.restored_from}"
    return f"generation {each.number}: {layout} from step {each.start_step}{source}{_steps(each)}"


def _steps(each: GenerationSpan) -> str:
    if each.last_step is None:
        return ", no step"
    repeated = f", of which {each.repeated} were repeated later" if each.repeated else ""
    return f", to step {each.last_step}{repeated}"
