"""Commands of `regroup projects`: quotas, limits and defaults of projects."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.projects import Project as ProjectModel

app = typer.Typer(
    cls=GroupedCommands,
    help="Set quotas, limits and defaults of projects; see docs/guides/queue.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Project = Annotated[
    str, typer.Argument(metavar="PROJECT", autocompletion=complete_project, help="Name of the project.")
]
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH=VALUE…",
        help="Settings: guaranteed, borrowable, limit, weight, spares, budget.…, admits.… or defaults.…. The value is "
        "YAML; null resets it.",
    ),
]


def projects_list(server: Server = None, as_json: AsJson = False) -> None:
    """List projects that have settings or unfinished jobs."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.projects()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each.name, str(each.allocated), str(each.guaranteed), _or(each.borrowable, "all"), _or(each.limit, "-"),
            f"{each.weight:g}", str(each.spares), str(each.running), str(each.queued),
        )
        for each in found
    ]  # fmt: skip
    print_table(
        ("PROJECT", "ALLOCATED", "GUARANTEED", "BORROWABLE", "LIMIT", "WEIGHT", "SPARES", "RUNNING", "QUEUED"), rows
    )


def projects_get(project: Project, server: Server = None, as_json: AsJson = False) -> None:
    """Show all fields of a project."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.project(project)
    if as_json:
        print_json(found)
        return
    print_table(("FIELD", "VALUE"), [(name, _or(value, "-")) for name, value in found.model_dump(mode="json").items()])


def projects_set(project: Project, changes: Changes, server: Server = None, as_json: AsJson = False) -> None:
    """Create a project, or change the given settings. Running jobs continue."""
    from regroup.api.cli.spec_input.spec_file import set_value
    from regroup.api.schemas.projects import ProjectSettings

    def call(client: "Client") -> "ProjectModel":
        fields = set(ProjectSettings.model_fields)
        settings: dict[str, Any] = client.project(project).model_dump(mode="json", include=fields)
        for change in changes:
            set_value(settings, change)
        return client.set_project(project, settings)

    run_action(server, call, _describe_settings, as_json=as_json)


def projects_delete(project: Project, server: Server = None) -> None:
    """Delete the settings of a project that has no unfinished jobs."""
    run_action(server, lambda client: client.delete_project(project), lambda _: f"{project} deleted", as_json=False)


def _describe_settings(project: "ProjectModel") -> str:
    is_over = project.limit is not None and project.allocated > project.limit
    over = f"; it uses {project.allocated} devices, so no job starts until it uses fewer" if is_over else ""
    return f"{project.name} saved{over}"


def _or(value: object, none: str) -> str:
    if value is None:
        return none
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)


_VERBS = {"list": projects_list, "get": projects_get, "set": projects_set, "delete": projects_delete}
for _name, _verb in _VERBS.items():
    app.command(_name)(_verb)
