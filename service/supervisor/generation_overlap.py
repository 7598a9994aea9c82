"""Overlap of generations: the ranks of a planned change are formed while the ranks before them still train.

Only what needs the last step's state is left for the pause. If these ranks cannot be formed, the new ranks start after
the old ones.
"""

import asyncio
import time
from collections.abc import Callable

from regroup.service.policy.recovery.restore_source import RestoreKind, RestoreSource
from regroup.service.ports.agents import AgentError, AgentLostError
from regroup.service.supervisor.gang.gang import Gang
from regroup.service.supervisor.gang.prepared_generation import PreparedGeneration
from regroup.service.supervisor.job_state.event_log import EventLog
from regroup.service.supervisor.job_state.generations import Generation, GenerationLog
from regroup.service.supervisor.job_state.job_config import JobConfig
from regroup.workers.contract.messages import Join


class GenerationOverlap:
    """Forms and discards the ranks of the next generation. `Gang.form_ranks` uses them."""

    def __init__(
        self, gang: Gang, generations: GenerationLog, join_message: Callable[[JobConfig], Join], log: EventLog
    ) -> None:
        """Initialize without prepared ranks.

        Args:
            gang: the present gang. It passes the prepared ranks on to the next one.
            generations: records of generations, which give the next number.
            join_message: returns what all ranks of the next generation have in common.
            log: receives the progress.
        """
        self._gang, self._generations, self._join_message, self._log = gang, generations, join_message, log
        self._discarding: set[asyncio.Task[None]] = set()

    async def form(self, payload: JobConfig, present: int) -> None:
        """Form the ranks of the next generation. Return when they wait for their state, or when that has failed.

        Args:
            payload: configuration of the job after the change.
            present: number of the generation that trains.
        """
        await asyncio.gather(*self._discarding, return_exceptions=True)
        began_s, source = time.monotonic(), RestoreSource(RestoreKind.NONE)
        next_ = Generation(self._generations.next_number, payload.layout, payload.places, source, "")
        gang = self._gang.with_configs(payload.agent_configs())
        prepared = PreparedGeneration(self._gang.agents, next_, self._join_message(payload), self._gang.secrets.version)
        self._gang.prepared = prepared
        try:
            await gang.prepare_ranks(prepared)
            why = prepared.failure
        except (AgentError, AgentLostError) as error:
            why = str(error)
        except TimeoutError:
            why = "they did not form in time"
        except Exception as error:  # otherwise the job would wait without end
            why = f"{type(error).__name__}: {error}; please report this"
        count, number, took_s = len(next_.ranks), next_.number, time.monotonic() - began_s
        if not why:
            message = f"{count} ranks of generation {number} are formed while generation {present} trains"
            self._log.emit_prepared(present, message, {"next_generation": number, "ranks": count, "seconds": took_s})
        elif self._gang.prepared is prepared:
            self.discard()
            message = f"the ranks of generation {number} are formed after generation {present} has ended: {why}"
            self._log.emit_prepared(present, message, {"next_generation": number, "failure": why})

    def discard(self) -> None:
        """Kill the prepared ranks, if there are any, in the background."""
        prepared, self._gang.prepared = self._gang.prepared, None
        if prepared is not None:
            task = asyncio.get_running_loop().create_task(prepared.discard())
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)
