"""Verbs that change something: submit, validate, cancel, release."""

from typing import Annotated

import typer

from regroup.api.cli.common import exit_codes
from regroup.api.cli.common.options import AsJson, Job, Server, Settings, Spec
from regroup.api.cli.common.output import leave, print_json, say
from regroup.api.cli.spec_input.requirements import Requirements, listed
from regroup.api.cli.spec_input.working_dir import WorkingDir, addressed, named, uploaded

Wait = Annotated[bool, typer.Option("--wait", help="Return when the job is over; exit 0 only if it SUCCEEDED.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", metavar="KEY", help="Submitting twice with one key makes one job. Made up if absent."
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
    from regroup.api.cli.spec_input.spec_file import read_spec
    from regroup.api.client.discovery import connect

    data = listed(named(read_spec(spec, settings or ()), working_dir, spec.parent), requirements, spec.parent)
    with connect(server, patient=wait) as client:
        job = client.submit(uploaded(client, data), idempotency_key=key)
        if wait:
            if not as_json:
                say(f"{job.id} {job.state}; waiting")
            job = client.wait(job.id)
        if as_json:
            print_json(job)
        elif wait:
            print(f"{job.id} {job.state} ({job.reason})" + (f": {job.message}" if job.message else ""))
        else:
            print(job.id)
            say(f"follow it: regroup watch {job.id}")
        if wait and job.state != "SUCCEEDED":
            leave(exit_codes.JOB_NOT_SUCCEEDED)


def validate(spec: Spec, settings: Settings = None, server: Server = None, as_json: AsJson = False) -> None:
    """Check a spec without submitting it; without a server, against the rules of this version alone."""
    from regroup.api.cli.spec_input.spec_file import read_spec
    from regroup.api.client.discovery import address, connect
    from regroup.service.spec.job import parse_spec

    data = addressed(listed(named(read_spec(spec, settings or ()), None, spec.parent), None, spec.parent))
    checked: object
    if address(server) is None:
        spec_with_defaults = parse_spec(data)
        checked = {"spec": spec_with_defaults, "ladder": spec_with_defaults.ladder}
    else:
        with connect(server) as client:
            checked = client.validate(data)
    if as_json:
        print_json(checked)
    else:
        print(f"{spec} is a valid spec")


def cancel(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Ask a job to stop; its devices are given back once every rank is gone."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        told = client.cancel(job)
        if as_json:
            print_json(told)
        else:
            print(f"{told.id} {told.state}; told to stop")


def release(job: Job, server: Server = None, as_json: AsJson = False) -> None:
    """Let go of the nodes of a job that failed and is held (hold_on_failure)."""
    from regroup.api.client.discovery import connect

    with connect(server) as client:
        told = client.release(job)
        if as_json:
            print_json(told)
        else:
            print(f"{told.id} {told.state}; its nodes are let go")
