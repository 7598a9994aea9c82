"""The preparation as a Ray Data pipeline in the job's own reservations. The only file of this folder that imports ray.

A task drives it, so that neither an agent nor a rank ever imports Ray Data; what it does is below `drive`. All tasks
run inside the placement groups that hold the job's devices: a cluster without a free processor does not keep them
waiting, no other job pays for them, and they end when the reservation does. Records never pass through the object
store: a task writes its unit to durable storage and returns some hundred bytes about it.
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
"""Times that a driver or its workers may die without a word. What was made until then is not made again."""
_PERSONS_ERRORS = (DataError, StorageError, SecretMissing)

Said = dict[str, Any]
"""`progress` and `message`; at last `meta`, or `error` as agents reply it."""


class Pipeline:
    """The one preparation that an agent runs."""

    def __init__(self) -> None:
        self._order: Mapping[str, Any] | None = None
        self._running: asyncio.Task[Said] | None = None

    async def run(self, order: Mapping[str, Any], note: Callable[[str, dict[str, Any]], None]) -> Said:
        """Prepare, or wait for the same preparation that a former supervisor has asked for.

        Args:
            order: `data` (a `Recipe` as plain data), `datasets_uri`, `agent` (`AgentConfig` as plain data), and
                `places`: node id → `reservations` (name → its CPUs), `scratch`, `code`, `python`.
            note: hears `progress`.

        Returns:
            What the job's nodes are told, or `error`.
        """
        if self._running is None or self._running.done() or self._order != order:
            await self.cancel()
            self._order, self._running = order, asyncio.get_running_loop().create_task(_prepare(order, note))
        return await asyncio.shield(self._running)

    async def cancel(self) -> None:
        """End it, with all of its tasks."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._running
            self._running = None


async def _prepare(order: Mapping[str, Any], note: Callable[[str, dict[str, Any]], None]) -> Said:
    first = next(iter(next(iter(order["places"].values()))["reservations"]))
    for attempt in range(1, ATTEMPTS + 1):
        driver = ray.remote(drive).options(
            num_cpus=0, num_returns="streaming", max_retries=0, scheduling_strategy=_inside(first)
        )
        stream: Any = driver.remote(dict(order))
        try:
            async for ref in stream:
                said: Said = await ref
                if "message" in said:
                    note("progress", {"fraction": said["progress"], "message": said["message"]})
                elif "meta" in said:
                    return preparation.summary(said["meta"])
                else:
                    return said
        except RayError as error:
            message = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            note("preparation", {"message": f"data preparation died: {message}", "attempt": attempt})
            if attempt == ATTEMPTS:
                told = f"data preparation died {ATTEMPTS} times, at last with: {message}; did a node run out of memory?"
                return {"error": {"kind": "data", "message": told, "traceback": str(error)[-8000:]}}
        except asyncio.CancelledError:
            ray.cancel(stream, force=True)  # tasks end with the driver that owns them
            raise
    raise AssertionError("the last attempt returns")


def drive(order: dict[str, Any]) -> Generator[Said]:
    """Plan, make the units, write the manifest. A Ray task that streams what it says."""
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
    except _PERSONS_ERRORS as error:
        yield _told(error)


def _units(order: Mapping[str, Any], plan: preparation.Plan) -> Generator[dict[str, Any]]:
    """The pipeline: what each unit came to, as it comes."""
    import ray.data as ray_data  # a second, which only a preparation pays
    from ray.data._internal.execution.backpressure_policy import ConcurrencyCapBackpressurePolicy

    places: Mapping[str, Mapping[str, Any]] = order["places"]
    held = [reservation for place in places.values() for reservation in place["reservations"].items()]
    reservations = [_inside(name) for name, cpus in held for _ in range(cpus)]
    turns = itertools.cycle(reservations)
    context = ray_data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.scheduling_strategy = context.scheduling_strategy_large_args = reservations[0]
    # What tasks return is tiny, and the budgets that Ray Data makes of a reservation would let one task run at a time.
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
        except _PERSONS_ERRORS as error:
            return {"made": _told(error)}

    units = ray_data.from_items([{"unit": name} for name in plan.units], override_num_blocks=len(plan.units))
    # Ray Data deals out processors of the whole cluster, which are all taken: it is told that a task needs none, and
    # the reservation, which has some, is asked for one.
    made = units.map(
        one,
        num_cpus=0,
        compute=ray_data.TaskPoolStrategy(len(reservations)),
        ray_remote_args_fn=lambda: {"num_cpus": 1, "scheduling_strategy": next(turns)},
    )
    for row in made.iter_rows():
        yield row["made"]


def _inside(reservation: str) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(get_placement_group(reservation), placement_group_bundle_index=0)


def _told(error: Exception) -> Said:
    kind = "secret" if isinstance(error, SecretMissing) else "storage" if isinstance(error, StorageError) else "data"
    trace = error.traceback if isinstance(error, FunctionFailed) else ""
    return {"error": {"kind": kind, "message": str(error), "traceback": trace}}
