"""Run a preparation as a Ray Data pipeline in the job's own reservations. Only this file of the folder imports ray.

A Ray task drives the pipeline, so that agents and ranks never import Ray Data. All tasks run inside the placement
groups that hold the job's devices. So they start even if the cluster has no free processor, no other job pays for them,
and they end with the reservation. Records never pass through the object store: a task writes its unit to durable
storage and returns some hundred bytes.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Generator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import get_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.prepare import preparation
from regroup.workers.data.prepare.task import make_unit
from regroup.workers.data.prepare.user_function import FunctionFailed
from regroup.workers.os.node_facts import SecretMissing
from regroup.workers.storage.fsspec_storage import StorageError

ATTEMPTS = 3
"""Number of times that a driver or its workers may die. Finished units are kept."""
_USER_ERRORS = (DataError, StorageError, SecretMissing)

Report = dict[str, Any]
"""`progress` and `message`; finally `meta`, or `error` in the format of an agent's reply."""


class Pipeline:
    """Preparation that an agent runs, at most one at a time."""

    def __init__(self) -> None:
        self._order: Mapping[str, Any] | None = None
        self._running: asyncio.Task[Report] | None = None

    async def run(self, order: Mapping[str, Any], note: Callable[[str, dict[str, Any]], None]) -> Report:
        """Prepare the data, or wait for the same preparation that an earlier supervisor requested.

        Args:
            order: `data` (a `Recipe` as plain data), `datasets_uri`, `agent` (`AgentConfig` as plain data), and
                `places`: node id → `reservations` (name → its CPUs), `scratch`, `code`, `python`.
            note: Receives `progress`.

        Returns:
            Description of the data for the nodes of the job, or `error`.
        """
        if self._running is None or self._running.done() or self._order != order:
            await self.cancel()
            self._order, self._running = order, asyncio.get_running_loop().create_task(_prepare(order, note))
        return await asyncio.shield(self._running)

    async def cancel(self) -> None:
        """Cancel the preparation with all of its tasks."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._running
            self._running = None


async def _prepare(order: Mapping[str, Any], note: Callable[[str, dict[str, Any]], None]) -> Report:
    first = next(iter(next(iter(order["places"].values()))["reservations"]))
    for attempt in range(1, ATTEMPTS + 1):
        driver = ray.remote(drive).options(
            num_cpus=0, num_returns="streaming", max_retries=0, scheduling_strategy=_inside(first)
        )
        stream: Any = driver.remote(dict(order))
        try:
            async for ref in stream:
                report: Report = await ref
                if "message" in report:
                    note("progress", {"fraction": report["progress"], "message": report["message"]})
                elif "meta" in report:
                    return preparation.summary(report["meta"])
                else:
                    return report
        except RayError as error:
            message = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            note("preparation", {"message": f"data preparation died: {message}", "attempt": attempt})
            if attempt == ATTEMPTS:
                failure = (
                    f"data preparation died {ATTEMPTS} times, the last time with: {message}; check the memory of nodes"
                )
                return {"error": {"kind": "data", "message": failure, "traceback": str(error)[-8000:]}}
        except asyncio.CancelledError:
            ray.cancel(stream, force=True)  # tasks end with the driver that owns them
            raise
    raise AssertionError("the last attempt returns")


def drive(order: dict[str, Any]) -> Generator[Report]:
    """Plan, make the units, write the manifest. A Ray task that streams its progress."""
    try:
        plan = yield from preparation.plan(order["data"], order["datasets_uri"])
        meta = plan.meta
        if meta is None:
            made: list[dict[str, Any]] = []
            for unit in _units(order, plan):
                if "error" in unit:
                    yield unit
                    return
                made.append(unit)
                records = sum(item["records"] for item in made)
                message = f"{len(made)} of {len(plan.units)} parts prepared, {records} records"
                yield {"progress": len(made) / len(plan.units), "message": message}
            meta = preparation.finish(plan, made)
        yield {"meta": meta}
    except _USER_ERRORS as error:
        yield _error_report(error)


def _units(order: Mapping[str, Any], plan: preparation.Plan) -> Generator[dict[str, Any]]:
    """Run the pipeline and yield the result of each unit as it finishes."""
    import ray.data as ray_data  # takes a second, which only a preparation pays
    from ray.data._internal.execution.backpressure_policy import ConcurrencyCapBackpressurePolicy

    places: Mapping[str, Mapping[str, Any]] = order["places"]
    held = [reservation for place in places.values() for reservation in place["reservations"].items()]
    reservations = [_inside(name) for name, cpus in held for _ in range(cpus)]
    rotation = itertools.cycle(reservations)
    context = ray_data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.scheduling_strategy = context.scheduling_strategy_large_args = reservations[0]
    # Results are tiny, and the budgets that Ray Data derives from a reservation would run one task at a time.
    context.set_config("backpressure_policies.enabled", [ConcurrencyCapBackpressurePolicy])
    common = {
        "recipe": order["data"],
        "folder": plan.folder,
        "agent": order["agent"],
    }

    def one(row: dict[str, Any]) -> dict[str, Any]:
        place = places[ray.get_runtime_context().get_node_id()]
        try:
            pieces = [vars(piece) for piece in plan.units[row["unit"]]]
            return {"made": make_unit({**common, "unit": row["unit"], "pieces": pieces}, place)}
        except _USER_ERRORS as error:
            return {"made": _error_report(error)}

    units = ray_data.from_items([{"unit": name} for name in plan.units], override_num_blocks=len(plan.units))
    # Ray Data assigns processors of the whole cluster, which may all be in use. Therefore a task requests none from
    # Ray Data, and one from the reservation.
    made = units.map(
        one,
        num_cpus=0,
        compute=ray_data.TaskPoolStrategy(len(reservations)),
        ray_remote_args_fn=lambda: {"num_cpus": 1, "scheduling_strategy": next(rotation)},
    )
    for row in made.iter_rows():
        yield row["made"]


def _inside(reservation: str) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(get_placement_group(reservation), placement_group_bundle_index=0)


def _error_report(error: Exception) -> Report:
    kind = "secret" if isinstance(error, SecretMissing) else "storage" if isinstance(error, StorageError) else "data"
    trace = error.traceback if isinstance(error, FunctionFailed) else ""
    return {"error": {"kind": kind, "message": str(error), "traceback": trace}}
