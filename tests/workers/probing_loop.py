"""The probe on ranks that appear to be on two nodes, with small sizes."""

import os

from regroup.workers.probe import collectives, matmul, run, timing, training_steps
from regroup.workers.probe.collectives import _CASES


def on_two_nodes(context):
    run.SIZES_BYTES["cpu"], run.LINK_BYTES["cpu"] = (4096, 65536), 65536
    matmul._SIDES["cpu"], matmul._COPIED_BYTES["cpu"] = (32, 128), 1 << 20
    training_steps.SHAPES, training_steps.DEPTHS = training_steps.SHAPES[:2], ((2, 1),)
    timing._BURST_S = 0.0
    os.environ["GROUP_RANK"] = str(context.rank // 2)
    run.measure(context)


def with_one_that_adds_wrongly(context):
    right = _CASES["all_reduce"]

    def wrong(group, each, device):
        case = right(group, each, device)
        return collectives._Case(lambda: (case.run(), case.found[-1:].add_(1.0)), case.found, case.expected)

    if context.rank == 2:
        _CASES["all_reduce"] = wrong
    for others in ("_matmuls", "_links", "_blocks", "_steps", "_loads"):
        setattr(run._Probe, others, lambda probe: None)
    on_two_nodes(context)
