"""Other ways to split a job's ranks, all else of its spec kept: what a job can go through while it trains."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import Room
from regroup.service.planner.from_spec import kept_of, plan_of, work_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.time_model import step_time
from regroup.service.spec.job import JobSpec


def splits(spec: JobSpec, ranks: int, room: Room) -> list[tuple[Layout, float]]:
    """Legal layouts of so many ranks that fit, with the seconds of a step that are predicted, the fastest first.

    Recomputation, schedule and what data parallelism shards are those of the spec, and so is the micro-batch, if it is
    legal and fits, else the largest part of it that does: a result depends on a split only by the order of sums. Of a
    batch that follows the world size it would depend on the data-parallel degree, too: then that is the spec's.

    Raises:
        SpecError: the planner cannot describe the job.
    """
    work, training, cluster = work_of(spec), spec.training, room.cluster(ranks)
    assert training is not None, "described jobs have one"
    constants, found = room.constants.on(room.device), list[tuple[float, float, Layout]]()
    for tp in range(1, ranks + 1):
        for pp in range(1, ranks // tp + 1) if ranks % tp == 0 and room.holds(ranks, tp) else ():
            dp = ranks // (tp * pp)
            split = spec.with_model_parallel(tp, pp)
            is_same_batch = training.batch == "fixed" or dp == spec.layout.dp.target
            if ranks % (tp * pp) or not is_same_batch:
                continue
            for layout in split.legal_layouts(dp):
                plan = plan_of(spec, layout)
                need = peak_bytes(work, plan, constants, kept_of(training))
                if need <= room.device.memory_bytes:
                    found.append((step_time(work, cluster, plan, constants).step_s, need, layout))
                    break
    return [(layout, step_s) for step_s, _, layout in sorted(found, key=lambda each: each[:2])]
