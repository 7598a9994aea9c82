"""Bring identities, projects, members, secrets and hooks into the state of a file.

The differences are computed here, from what the server shows. Each request requires the state that was compared
(`If-Match`), so a change that another person makes at the same time is not lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regroup.api.client.connection.requests import Operation, send
from regroup.api.client.operations import hooks, identities, projects, secrets
from regroup.api.client.operations.apply_hooks import find_hook_steps
from regroup.api.client.operations.apply_secrets import find_secret_steps
from regroup.api.client.operations.apply_steps import ApplyStep, StepAction, differences_of, lines_of, matching
from regroup.api.schemas.hooks import Hook
from regroup.api.schemas.identities import Identity, Member, MemberSettings
from regroup.api.schemas.projects import Project, ProjectSettings
from regroup.api.schemas.secrets import Secret
from regroup.api.schemas.setup import Setup, SetupIdentity, SetupProject
from regroup.service.domain.errors import FieldIssue, SpecError


@dataclass(frozen=True)
class CurrentSetup:
    """The objects of a file that the server has."""

    identities: Mapping[str, Identity]
    projects: Mapping[str, Project]
    members: Mapping[str, Mapping[str, Member]]
    """Project → its members by name."""
    secrets: Mapping[str, Mapping[str, Secret]] = field(default_factory=dict[str, Mapping[str, Secret]])
    """Project → its secrets by name, of the projects whose secrets the file lists."""
    hooks: Mapping[str, Sequence[Hook]] = field(default_factory=dict[str, Sequence[Hook]])
    """Project → its hooks, of the projects whose hooks the file lists."""


def apply(
    setup: Setup, *, prune: bool = False, replace_secrets: bool = False, trial: bool = False
) -> Operation[list[ApplyStep]]:
    """Make the changes and return them, in their order.

    Args:
        prune: Also remove members of the file's projects that the file does not list.
        replace_secrets: Also set the secrets that exist, and those of hooks.
        trial: The requests are dry runs. A step that needs the result of an earlier one is not sent.

    Raises:
        SpecError: the file changes what cannot be changed, or the value of a secret cannot be read.
        ApiError: the server refuses a change, or another person made one. The steps before are made.
    """
    current = yield from read_current(setup)
    steps = find_steps(setup, current, prune=prune)
    steps += find_secret_steps(setup, current.secrets, replace_all=replace_secrets)
    steps += find_hook_steps(setup, current.hooks, replace_all=replace_secrets)
    for step in steps:
        if step.request is not None and not (trial and step.needs is not None):
            yield from send(step.request)
    return steps


def read_current(setup: Setup) -> Operation[CurrentSetup]:
    """Read what the server has of the objects in the file."""
    people = yield from send(identities.identities())
    existing = {each.name: each for each in (yield from send(projects.projects()))}
    members: dict[str, Mapping[str, Member]] = {}
    stored: dict[str, Mapping[str, Secret]] = {}
    notified: dict[str, Sequence[Hook]] = {}
    for name, desired in setup.projects.items():
        if name not in existing:  # a project without settings exists, too
            existing[name] = yield from send(projects.project(name))
        members[name] = {each.subject: each for each in (yield from send(identities.members(name)))}
        if desired.secrets:
            stored[name] = {each.name: each for each in (yield from send(secrets.secrets(name)))}
        if desired.hooks:
            notified[name] = yield from send(hooks.hooks(name))
    return CurrentSetup({each.subject: each for each in people}, existing, members, stored, notified)


def find_steps(setup: Setup, current: CurrentSetup, *, prune: bool) -> list[ApplyStep]:
    """Return the changes that make the server equal to the file: identities, then projects, members, removals. Pure."""
    created = setup.identities.keys() - current.identities.keys()
    steps = [
        step
        for subject, desired in setup.identities.items()
        for step in _identity_steps(subject, desired, current.identities.get(subject))
    ]
    for name, desired in setup.projects.items():
        steps += _project_steps(name, desired, current.projects[name])
    for name, desired in setup.projects.items():
        members = _all_members(setup, name, desired)
        # A new service account becomes a member of its project with its creation.
        later = {each: role for each, role in members.items() if each not in created or each in desired.members}
        steps += _member_steps(name, later, current.members[name], created)
    if prune:
        for name, desired in setup.projects.items():
            steps += _removals(name, _all_members(setup, name, desired), current.members[name])
    return steps


def _identity_steps(subject: str, desired: SetupIdentity, there: Identity | None) -> list[ApplyStep]:
    if there is None:
        request = identities.create_identity(
            subject, desired.kind, desired.project, desired.role,
            is_operator=desired.is_operator, permissions=desired.permissions,
        )  # fmt: skip
        created = ApplyStep(StepAction.CREATE, "identity", subject, (), request)
        if not desired.disabled:
            return [created]
        disable = identities.change_identity(subject, disabled=True, is_operator=None, permissions=None)
        return [created, ApplyStep(StepAction.CHANGE, "identity", subject, ("disabled: no → yes",), disable, subject)]
    differences = differences_of(
        {
            "is_operator": (there.is_operator, desired.is_operator),
            "permissions": (sorted(there.permissions), sorted(desired.permissions)),
            "disabled": (there.disabled_at is not None, desired.disabled),
        }
    )
    fixed = {"kind": (str(there.kind), str(desired.kind)), "project": (there.project, desired.project)}
    if different := differences_of(fixed):
        name, change = next(iter(different.items()))
        message = f"cannot be changed ({change}): delete the identity first, or correct the file"
        raise SpecError([FieldIssue.at(("identities", subject, name), message, getattr(desired, name))])
    if not differences:
        return []
    request = identities.change_identity(
        subject,
        disabled=desired.disabled if "disabled" in differences else None,
        is_operator=desired.is_operator if "is_operator" in differences else None,
        permissions=desired.permissions if "permissions" in differences else None,
    )
    return [ApplyStep(StepAction.CHANGE, "identity", subject, lines_of(differences), matching(request, there.etag))]


def _project_steps(name: str, desired: SetupProject, there: Project) -> list[ApplyStep]:
    settings = ProjectSettings.model_validate(desired.model_dump(include=set(ProjectSettings.model_fields)))
    before, after = there.model_dump(mode="json"), settings.model_dump(mode="json")
    differences = differences_of({field_name: (before[field_name], after[field_name]) for field_name in after})
    if not differences:
        return []
    request = matching(projects.set_project(name, settings), there.etag)
    return [ApplyStep(StepAction.CHANGE, "project", name, lines_of(differences), request)]


def _member_steps(
    project: str, desired: Mapping[str, MemberSettings], there: Mapping[str, Member], created: Iterable[str]
) -> list[ApplyStep]:
    steps: list[ApplyStep] = []
    for subject, settings in desired.items():
        request, name = identities.set_member(project, subject, settings.role, settings.permissions), subject
        label = f"{name} of {project}"
        if (member := there.get(subject)) is None:
            needs = subject if subject in created else None
            details = (f"role: {settings.role}",)
            steps.append(ApplyStep(StepAction.CREATE, "member", label, details, request, needs))
            continue
        differences = differences_of(
            {
                "role": (str(member.role), str(settings.role)),
                "permissions": (sorted(member.permissions), sorted(settings.permissions)),
            }
        )
        if differences:
            change = matching(request, member.etag)
            steps.append(ApplyStep(StepAction.CHANGE, "member", label, lines_of(differences), change))
    return steps


def _removals(project: str, desired: Mapping[str, MemberSettings], there: Mapping[str, Member]) -> list[ApplyStep]:
    return [
        ApplyStep(
            StepAction.REMOVE, "member", f"{subject} of {project}", (f"role: {member.role}",),
            matching(identities.remove_member(project, subject), member.etag),
        )
        for subject, member in there.items()
        if subject not in desired
    ]  # fmt: skip


def _all_members(setup: Setup, project: str, desired: SetupProject) -> Mapping[str, MemberSettings]:
    """Return the members of a project in the file, with its service accounts, whose role is at their identity."""
    accounts = {
        subject: MemberSettings(role=identity.role)
        for subject, identity in setup.identities.items()
        if identity.project == project and identity.role is not None
    }
    return {**accounts, **desired.members}
