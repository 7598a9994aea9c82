"""The long-lived tasks of one server: they run under supervision, and report their health."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from regroup.service.tasks.pass_record import PassRecord
from regroup.service.tasks.supervised_task import SupervisedTask


class ServerTasks:
    """Supervised tasks, and the record of the controller's passes."""

    def __init__(self, passes: PassRecord | None = None) -> None:
        self.passes = passes or PassRecord()
        self._tasks: list[SupervisedTask] = []
        self._started: list[SupervisedTask] = []

    def add(self, name: str, work: Callable[[], Awaitable[None]]) -> SupervisedTask:
        """Add a task that should never end, and that `run` runs."""
        task = SupervisedTask(name, work)
        self._started.append(task)
        self._tasks.append(task)
        return task

    def track(self, task: SupervisedTask) -> None:
        """Report the health of a task that its owner runs."""
        self._tasks.append(task)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run all tasks that were added before, until the block ends."""
        running = [asyncio.create_task(task.run(), name=task.name) for task in self._started]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            for task in running:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def problems(self) -> dict[str, str]:
        """Return why the process should be restarted, by part; empty if it is healthy."""
        found = {task.name: problem for task in self._tasks if (problem := task.problem())}
        if problem := self.passes.problem():
            found["scheduling"] = problem
        return found

    def failures(self) -> dict[str, int]:
        """Return the number of failures of each task since the start of the process."""
        return {task.name: task.failures for task in self._tasks}
