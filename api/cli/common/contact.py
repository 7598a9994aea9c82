"""Lines on standard error while the server does not answer, and when it answers again."""

import threading
import time
from collections.abc import Callable

from regroup.api.cli.common.output import print_message
from regroup.api.live.formatting import duration

_FIRST_LINE_S = 1.0
"""Time without the server after which the first line is printed. A restart of a second is not worth one."""
_WORTH_S = 3.0
"""Time left below which no line is printed: an error follows soon."""
_NEXT_LINE_S = 10.0
_TICK_S = 0.25


class ContactReport:
    """Reports that the server does not answer, at most once in ten seconds. Use it from any thread.

    Args:
        url: URL of the server.
        print_line: Prints a line.
        clock: Monotonic seconds.
    """

    def __init__(
        self, url: str, print_line: Callable[[str], None] = print_message, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url, self._print_line, self._clock = url, print_line, clock
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, float]] = {}
        """Thread → when it began to wait, and for how long the server usually takes."""
        self._lost_s: float | None = None
        """Time of the first attempt that failed since the last answer."""
        self._printed_s: float | None = None
        """Time of the last line about the present loss."""
        self._watcher: threading.Thread | None = None

    def expect(self, limit_s: float) -> None:
        """Note that the calling thread waits for the server, which usually answers within `limit_s`."""
        with self._lock:
            self._waiting[threading.get_ident()] = (self._clock(), limit_s)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()

    def done(self) -> None:
        """Note that the calling thread waits no longer."""
        with self._lock:
            self._waiting.pop(threading.get_ident(), None)

    def answered(self) -> None:
        """Note that the server answered the calling thread."""
        with self._lock:
            was_reported = self._printed_s is not None
            self._lost_s = self._printed_s = None
        if was_reported:
            self._print_line(f"the server {self._url} answers again")

    def lost(self, reason: str, left_s: float) -> None:
        """Note that an attempt failed. The client repeats it for at most `left_s` more seconds."""
        now = self._clock()
        with self._lock:
            if self._lost_s is None:
                self._lost_s = now
            if now - self._lost_s < _FIRST_LINE_S or left_s < _WORTH_S or not self._is_due(now):
                return
            self._printed_s = now
        self._print_line(
            f"the server {self._url} does not answer ({reason}); trying again for {duration(left_s)}. "
            "Jobs continue without it"
        )

    def check(self) -> None:
        """Report a thread that has waited longer than the server usually takes."""
        now = self._clock()
        with self._lock:
            late = [now - since_s for since_s, limit_s in self._waiting.values() if now - since_s > limit_s]
            if not late or not self._is_due(now):
                return
            self._printed_s = now
        self._print_line(
            f"the server {self._url} has not answered for {duration(max(late))}; waiting. Jobs continue without it"
        )

    def _is_due(self, now: float) -> bool:
        return self._printed_s is None or now - self._printed_s >= _NEXT_LINE_S

    def _watch(self) -> None:
        """Check from time to time, as long as a thread waits."""
        while True:
            time.sleep(_TICK_S)
            with self._lock:
                if not self._waiting:
                    self._watcher = None
                    return
            self.check()
