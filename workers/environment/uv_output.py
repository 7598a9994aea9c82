"""The output of uv: its progress, and the reason of a failure."""

from collections.abc import Iterable

_REPEAT_S = 10.0
"""Time without news after which the current activity is reported again."""


class UvProgress:
    """The progress of `uv pip install`, parsed from its output."""

    def __init__(self) -> None:
        self._newest: tuple[float | None, str] = (None, "resolving requirements")
        self._reported_s = 0.0

    def update(self, line: str | None, elapsed_s: float) -> tuple[float | None, str] | None:
        """Return a fraction, if there is one, and a message; None without news.

        Args:
            line: A line of output; None while uv prints nothing.
            elapsed_s: Seconds since the start.
        """
        news = self._parse(line or "")
        if news is not None:
            self._newest, self._reported_s = news, elapsed_s
        elif elapsed_s - self._reported_s >= _REPEAT_S:
            self._reported_s = elapsed_s
            fraction, message = self._newest
            news = fraction, f"{message}, after {elapsed_s:.0f} s"
        return news

    @staticmethod
    def _parse(line: str) -> tuple[float | None, str] | None:
        match line.split():
            case ["Resolved", count, "package" | "packages", *_]:
                return None, f"preparing {count} packages"
            case ["Downloading", name, *size]:
                return None, " ".join(["downloading", name, *size])
            case ["Building", name, *_]:
                return None, f"building {name}"
            case ["Prepared", count, "package" | "packages", *_]:
                return None, f"installing {count} packages"
            case ["Installed", count, "package" | "packages", *_]:
                return 1.0, f"installed {count} packages"
            case _:
                return None


def reason_of(last: Iterable[str], code: int) -> str:
    """Return uv's error with its causes on one line; without an error, its last line."""
    lines = [line.strip() for line in last if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if not starts:
        return f"it ended with code {code} after {lines[-1]!r}" if lines else f"code {code}"
    error = lines[starts[-1] :]
    end = next((number for number, line in enumerate(error) if line.startswith(("hint:", "["))), len(error))
    return " ".join(_joined(error[:end]))


def _joined(error: Iterable[str]) -> Iterable[str]:
    """Join the lines of an error: `error: A`, `cause: B` and the continuation `C` become `A:`, `B`, `C`."""
    first, *rest = error
    message = [first.removeprefix("error: ")]
    for line in rest:
        if line.startswith("cause: "):
            message[-1] = message[-1].rstrip(".") + ":"
        message.append(line.removeprefix("cause: "))
    return message
