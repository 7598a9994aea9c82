"""The verb that gives a job another size: resize."""

from typing import Annotated

import typer

from regroup.api.cli.common.options import AsJson, Job, Server
from regroup.api.cli.common.output import print_json

DP = Annotated[
    int | None, typer.Option("--dp", metavar="N", min=1, help="Data-parallel degree, inside the spec's range.")
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", min=1, help="Instead: so many ranks, split as the planner says.")
]
TP = Annotated[int | None, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel degree, if it is another.")]
PP = Annotated[int | None, typer.Option("--pp", metavar="N", min=1, help="Pipeline-parallel degree, if it is another.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is so; exit 0 only if that came about.")]


def resize(
    job: Job,
    dp: DP = None,
    tp: TP = None,
    pp: PP = None,
    ranks: Ranks = None,
    wait: Wait = False,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Have a job go on with more, fewer or otherwise split ranks, from where it stands: no step is lost."""
    from regroup.api.client.discovery import connect
    from regroup.api.client.job_control import requested_layout
    from regroup.service.domain.errors import RegroupError

    with connect(server, patient=wait) as client:
        told = client.resize(job, dp, tp=tp, pp=pp, ranks=ranks)
        before, wanted = told.layout, requested_layout(told)
        if wait and wanted is not None:
            now = client.wait_for_resize(told.id)
            if now != wanted:
                raise RegroupError(f"job {told.name} did not come to {wanted}: see `regroup why {told.name}`")
            told = client.get(told.id)
    if as_json:
        print_json(told)
    elif wanted is None:
        print(f"{told.name} is of that size already: {told.layout}")
    elif wait:
        print(f"{told.name} goes on at {wanted}")
    else:
        print(f"{told.name} goes from {before or 'the queue'} to {wanted} as soon as there is room")
