"""The task that delivers notifications. It runs on each server, and works on the leader only.

Deliveries are claimed in the database, so a leader that was replaced cannot take the work of the next one. An attempt
that a crash interrupts is repeated: receivers get each notification at least once, and recognize it by its id.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from regroup.service.domain.credentials.keyring import Keys, no_keys
from regroup.service.domain.errors import PreconditionError, UnavailableError
from regroup.service.domain.hooks import HookKind
from regroup.service.operations.hooks.hooks import rules_of
from regroup.service.operations.hooks.http_sender import HttpSender
from regroup.service.operations.hooks.mail_sender import MailSender
from regroup.service.policy.hooks.retries import Attempt, decide_after
from regroup.service.settings import Settings
from regroup.service.store.rows.hook_rows import ClaimedDelivery
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

MAX_ATTEMPTS_AT_ONCE = 16
MAX_ATTEMPTS_PER_HOOK = 4
"""Number of attempts of one hook at the same time: a slow receiver does not delay the others."""
MAIL_TIMEOUT_S = 45.0
"""Longest wait for the mail server. It is shorter than a claim."""
_INTERVAL_S = 1.0
_log = structlog.get_logger(__name__)


class HookDelivery:
    """Delivers notifications while this server leads.

    Args:
        lease: returns the lease of this server; None if it does not lead.
        keys: returns the keys that decrypt the secrets of hooks.
        clock: Unix seconds.
        interval_s: longest time until a new delivery is found.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        lease: Callable[[], Lease | None],
        clock: Callable[[], float] = time.time,
        interval_s: float = _INTERVAL_S,
        keys: Keys = no_keys,
    ) -> None:
        self._keys = keys
        self._store, self._settings = store.hooks.deliveries, settings
        self._lease, self._clock, self._interval_s = lease, clock, interval_s
        self._busy = Counter[str]()
        """Number of attempts in progress, by hook."""
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled."""
        # Threads of its own: slow name servers and mail servers delay only notifications.
        threads = ThreadPoolExecutor(MAX_ATTEMPTS_AT_ONCE, thread_name_prefix="hooks")
        http, mail = HttpSender(rules_of(self._settings), threads, self._keys), MailSender(self._settings, threads)
        self._busy.clear()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._ended.clear()
                    for claimed in await self._claim():
                        self._busy[claimed.hook.id] += 1
                        tasks.create_task(self._attempt(claimed, http, mail))
                    await self._wait()
        finally:
            await http.close()
            threads.shutdown(wait=False, cancel_futures=True)

    async def _claim(self) -> list[ClaimedDelivery]:
        lease, limit = self._lease(), MAX_ATTEMPTS_AT_ONCE - self._busy.total()
        if lease is None or limit <= 0:
            return []
        try:
            return await self._store.claim(
                lease, busy=self._busy, per_hook=MAX_ATTEMPTS_PER_HOOK, limit=limit, now=self._clock()
            )
        except PreconditionError:
            return []  # another server leads now
        except UnavailableError as error:
            _log.warning("the delivery of notifications is delayed", error=str(error))
            return []

    async def _wait(self) -> None:
        """Wait until an attempt has ended, so that another one can begin, at most for the interval."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._ended.wait()

    async def _attempt(self, claimed: ClaimedDelivery, http: HttpSender, mail: MailSender) -> None:
        started_s = time.monotonic()
        try:
            try:
                attempt = await self._send(claimed, http, mail)
            except Exception as error:  # of one notification: the others are delivered
                _log.error("a notification could not be delivered", delivery=claimed.delivery.id, exc_info=error)
                attempt = Attempt(error=f"the server has a fault: {type(error).__name__}; see its log")
            verdict = decide_after(attempt, claimed.delivery.attempts, random.random())
            duration_s = time.monotonic() - started_s
            await self._store.finish(claimed, attempt, verdict, duration_s, now=self._clock())
        except UnavailableError as error:  # the claim ends, and the delivery is repeated
            _log.warning("the result of a notification was not stored", delivery=claimed.delivery.id, error=str(error))
        finally:
            self._busy -= Counter({claimed.hook.id: 1})
            self._ended.set()

    async def _send(self, claimed: ClaimedDelivery, http: HttpSender, mail: MailSender) -> Attempt:
        if claimed.hook.kind is not HookKind.EMAIL:
            return await http.send(claimed, self._clock())
        try:
            async with asyncio.timeout(MAIL_TIMEOUT_S):
                return await mail.send(claimed)
        except TimeoutError:
            return Attempt(error=f"the mail server did not answer within {MAIL_TIMEOUT_S:g} s")
