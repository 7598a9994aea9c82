"""The decision whether a hook delivers an event. Pure."""

from regroup.service.domain.hooks import STATE_PREFIX, HookEvent, HookFilter


def is_delivered(event: HookEvent, selection: HookFilter) -> bool:
    """Return True if the filter selects the event: by its type, or the state it enters, and by the job's labels."""
    names = {event.type}
    if event.type == "state":
        names.add(f"{STATE_PREFIX}{event.data.get('to')}")
    if not names & selection.events:
        return False
    return all(event.labels.get(key) == value for key, value in selection.labels.items())
