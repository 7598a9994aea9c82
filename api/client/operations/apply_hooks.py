"""Hooks in the file of `regroup apply`. A hook is found by its name in its project.

URLs of chats and keys of signatures are secrets: their values come from a variable or a file of the caller. The server
shows neither, so values that exist are set again only on request.
"""

from collections.abc import Mapping, Sequence

from regroup.api.client.operations import hooks
from regroup.api.client.operations.apply_secrets import read_source
from regroup.api.client.operations.apply_steps import ApplyStep, StepAction, differences_of, lines_of, matching
from regroup.api.schemas.hooks import Hook
from regroup.api.schemas.setup import Setup, SetupHook, SetupSecret
from regroup.service.domain.credentials.webhook_signature import SECRET_FORM, is_secret
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.policy.hooks.destinations import hide_secrets

_Location = tuple[str, ...]


def find_hook_steps(setup: Setup, current: Mapping[str, Sequence[Hook]], *, replace_all: bool) -> list[ApplyStep]:
    """Return the steps that create and change the hooks of the file. All values are read now, before the first change.

    Args:
        setup: the file.
        current: project → its hooks.
        replace_all: also set URLs and keys that the server does not show.

    Raises:
        SpecError: a value cannot be read, two hooks of a project have the same name, or the kind of a hook differs.
    """
    steps: list[ApplyStep] = []
    for project, desired in setup.projects.items():
        for name, hook in desired.hooks.items():
            location = ("projects", project, "hooks", name)
            found = [each for each in current.get(project, ()) if each.name == name]
            if len(found) > 1:
                ids = ", ".join(each.id for each in found)
                message = f"project {project} has {len(found)} hooks of this name ({ids}): remove all but one"
                raise SpecError([FieldIssue.at(location, message)])
            if found:
                steps += _change_steps(project, hook, found[0], location, replace_all=replace_all)
            else:
                steps.append(_creation(project, name, hook, location))
    return steps


def _creation(project: str, name: str, hook: SetupHook, location: _Location) -> ApplyStep:
    url, secret = _read_url(hook, location), _read_secret(hook, location)
    request = hooks.create_hook(
        project, name, hook.kind, url, hook.recipients, hook.events, hook.labels, secret, not hook.disabled
    )
    to = ", ".join(hook.recipients) if url is None else hide_secrets(hook.kind, url)
    return ApplyStep(StepAction.CREATE, "hook", f"{name} of {project}", (f"{hook.kind}: {to}",), request)


def _change_steps(
    project: str, hook: SetupHook, there: Hook, location: _Location, *, replace_all: bool
) -> list[ApplyStep]:
    if there.kind != hook.kind:
        message = f"cannot be changed ({there.kind} → {hook.kind}): remove the hook first, or correct the file"
        raise SpecError([FieldIssue.at((*location, "kind"), message, str(hook.kind))])
    url = _read_url(hook, location)
    shown = None if url is None else hide_secrets(hook.kind, url)
    differences = differences_of(
        {
            "url": (there.url, shown),
            "recipients": (sorted(there.recipients), sorted(hook.recipients)),
            "events": (sorted(there.events), sorted(set(hook.events))),
            "labels": (dict(sorted(there.labels.items())), dict(sorted(hook.labels.items()))),
            "disabled": (not there.is_enabled, hook.disabled),
        }
    )
    if replace_all and url != shown:
        differences.setdefault("url", f"set again: {shown}")
    label, steps = f"{there.name} of {project}", list[ApplyStep]()
    if differences:
        request = hooks.change_hook(
            project, there.id, None, url, hook.recipients or None, hook.events, hook.labels, not hook.disabled
        )
        change = matching(request, there.etag)
        steps.append(ApplyStep(StepAction.CHANGE, "hook", label, lines_of(differences), change))
    if replace_all and (secret := _read_secret(hook, location)) is not None:
        rotation = hooks.rotate_hook(project, there.id, secret)  # no value was compared, so there is no condition
        steps.append(ApplyStep(StepAction.CHANGE, "hook", label, (f"secret: {hook.secret}",), rotation))
    return steps


def _read_url(hook: SetupHook, location: _Location) -> str | None:
    if isinstance(hook.url, SetupSecret):
        return read_source(hook.url, (*location, "url"))
    return hook.url


def _read_secret(hook: SetupHook, location: _Location) -> str | None:
    if hook.secret is None:
        return None
    value = read_source(hook.secret, (*location, "secret"))
    if not is_secret(value):
        raise SpecError([FieldIssue.at((*location, "secret"), f"its value must be {SECRET_FORM}")])
    return value
