"""Alternative layouts of a job: other parallel degrees that a running job can change to."""

from regroup.service.domain.layout import Layout
from regroup.service.planner.capacity import JobCapacity
from regroup.service.planner.from_spec import plan_of, state_bytes_of, work_of
from regroup.service.planner.memory_model import peak_bytes
from regroup.service.planner.time_model import step_time
from regroup.service.spec.job import JobSpec
from regroup.service.spec.ladder import find_divisors


def list_layouts(spec: JobSpec, ranks: int, capacity: JobCapacity) -> list[tuple[Layout, float]]:
    """List the legal layouts of `ranks` ranks that fit, with predicted seconds per step, fastest first.

    Recomputation, schedule and sharding are those of the spec. The micro-batch is that of the spec, or its largest
    divisor that is legal and fits. So the result of training depends on the layout only by the order of sums. If the
    batch follows the world size, the data-parallel degree is also that of the spec.

    Raises:
        SpecError: the planner cannot model the job.
    """
    work, training, cluster = work_of(spec), spec.training, capacity.cluster(ranks)
    assert training is not None, "a job that the planner models has one"
    constants, found = capacity.constants.on(capacity.device), list[tuple[float, float, Layout]]()
    for tp in find_divisors(ranks):
        for pp in find_divisors(ranks // tp) if capacity.fits(ranks, tp) else ():
            dp = ranks // (tp * pp)
            split = spec.with_model_parallel(tp, pp)
            is_same_batch = training.batch == "fixed" or dp == spec.layout.dp.target
            if not is_same_batch:
                continue
            for layout in split.legal_layouts(dp):
                plan = plan_of(spec, layout)
                need = peak_bytes(work, plan, constants, state_bytes_of(training))
                if need <= capacity.device.memory_bytes:
                    found.append((step_time(work, cluster, plan, constants).step_s, need, layout))
                    break
    return [(layout, step_s) for step_s, _, layout in sorted(found, key=lambda each: each[:2])]
