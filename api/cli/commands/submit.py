"""The commands submit, validate, cancel and release."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from regroup.api.cli.commands.resize import print_sizes
from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.dry_run import is_dry_run
from regroup.api.cli.common.interrupt import continuation_text
from regroup.api.cli.common.options import AsJson, Job, Project, Server, Settings, Spec
from regroup.api.cli.common.output import exit_with, print_json, print_message
from regroup.api.cli.spec_input.program_file import check_sent_entrypoint
from regroup.api.cli.spec_input.requirements import Requirements, with_requirements
from regroup.api.cli.spec_input.working_dir import WorkingDir, upload_code, with_code_address, with_working_dir

if TYPE_CHECKING:
    from regroup.api.client.client import Client
    from regroup.api.schemas.jobs import Job as JobModel
    from regroup.api.schemas.resize import SpecSizes

Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job ends; exit 0 only if it SUCCEEDED.")]
Sizes = Annotated[
    bool, typer.Option("--sizes", help="Also list the sizes of the job, with the predictions of the planner.")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", metavar="KEY", help="Two submissions with the same key create one job.  [default: random]"
    ),
]


def submit(
    spec: Spec,
    settings: Settings = None,
    wait: Wait = False,
    key: Key = None,
    working_dir: WorkingDir = None,
    requirements: Requirements = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job."""
    from regroup.api.cli.spec_input.field_places import add_places
    from regroup.api.cli.spec_input.spec_file import read_spec

    data = with_requirements(
        with_working_dir(read_spec(spec, settings or ()), working_dir, spec.parent), requirements, spec.parent
    )

    def wait_for_end(client: "Client", submitted: "JobModel") -> "JobModel":
        if not as_json:
            print_message(f"{submitted.id} {submitted.state}; waiting")
        return client.wait(submitted.id)

    with add_places(spec, settings or ()):
        check_sent_entrypoint(data)
        job = run_action(
            server,
            lambda client: client.submit(upload_code(client, data), idempotency_key=key),
            _describe_end if wait else lambda submitted: submitted.id,
            as_json=as_json,
            wait=wait_for_end if wait else None,
            describe_interrupt=continuation_text,
        )
    if wait and job.state != "SUCCEEDED":
        exit_with(exit_codes.JOB_NOT_SUCCEEDED)
    if not wait and not as_json and not is_dry_run():
        print_message(f"watch it: regroup watch {job.id}")


def validate(
    spec: Spec, settings: Settings = None, sizes: Sizes = False, server: Server = None, as_json: AsJson = False
) -> None:
    """Check a spec without submitting it. Without a server, check it against the rules of this version."""
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.spec_input.field_places import add_places
    from regroup.api.cli.spec_input.spec_file import read_spec
    from regroup.api.client.discovery import address
    from regroup.service.spec.job import parse_spec

    read = with_requirements(with_working_dir(read_spec(spec, settings or ()), None, spec.parent), None, spec.parent)
    checked: object
    with add_places(spec, settings or ()):
        check_sent_entrypoint(read)
        data = with_code_address(read)
        if sizes:
            with connect(server) as client:
                checked = client.spec_sizes(data)
        elif address(server) is None:
            spec_with_defaults = parse_spec(data)
            checked = {"spec": spec_with_defaults, "ladder": spec_with_defaults.ladder}
        else:
            with connect(server) as client:
                checked = client.validate(data)
    if as_json:
        print_json(checked)
        return
    print(f"{spec} is a valid spec")
    if sizes:
        print_sizes(cast("SpecSizes", checked).sizes)
        if why_not := cast("SpecSizes", checked).why_not:
            print(f"no predictions: {why_not}")


def cancel(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Cancel a job. Its devices are released when every rank has ended."""
    run_action(
        server,
        lambda client: client.cancel(job, project=project),
        lambda found: f"{found.id} {found.state}" + ("" if found.state.is_terminal else "; cancelling"),
        as_json=as_json,
    )


def release(job: Job, project: Project = "default", server: Server = None, as_json: AsJson = False) -> None:
    """Release the nodes of a failed job that holds them (`hold_on_failure`)."""
    run_action(
        server,
        lambda client: client.release(job, project=project),
        lambda found: f"{found.id} {found.state}; releasing its nodes",
        as_json=as_json,
    )


def _describe_end(job: "JobModel") -> str:
    return f"{job.id} {job.state} ({job.reason})" + (f": {job.message}" if job.message else "")
