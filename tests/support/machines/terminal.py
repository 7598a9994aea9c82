"""A terminal: a command in a pseudo-terminal of a given size, and the screen that a person would see."""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_SEQUENCE = re.compile(r"\x1b(?:\[([?>=]?)([0-9;]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNFINISHED = re.compile(r"\x1b(?:\[[?>=]?[0-9;]*|\][^\x07\x1b]*)?$")
_READ_BYTES = 65536


def squeeze(text: str) -> str:
    """Return text without white space: a terminal breaks lines anywhere."""
    return re.sub(r"\s+", "", text)


class Screen:
    """The characters on a terminal, and those that have left it at the top. Colours are ignored."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        """Lines that have left the screen, the oldest first."""
        self._lines = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        """Lines of the screen without spaces at their ends."""
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def text(self) -> str:
        """Everything that was shown and not replaced: the history, and the screen."""
        return "\n".join([*self.history, *self.lines]).rstrip()

    def feed(self, text: str) -> None:
        """Show more output."""
        text, self._rest = self._rest + text, ""
        if unfinished := _UNFINISHED.search(text):
            text, self._rest = text[: unfinished.start()], unfinished[0]
        at = 0
        while at < len(text):
            if text[at] == "\x1b" and (found := _SEQUENCE.match(text, at)):
                self._control(found)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._line_feed()
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character == "\t":
            self._column = min(self.columns - 1, (self._column // 8 + 1) * 8)
        elif character >= " ":
            if self._column == self.columns:
                self._column = 0
                self._line_feed()
            self._lines[self._row][self._column] = character
            self._column += 1

    def _line_feed(self) -> None:
        if self._row == self.rows - 1:
            self.history.append("".join(self._lines.pop(0)).rstrip())
            self._lines.append([" "] * self.columns)
        else:
            self._row += 1

    def _control(self, found: re.Match[str]) -> None:
        private, parameters, final = found[1], found[2], found[3]
        if final is None or private:
            return
        numbers = [int(each or 0) for each in parameters.split(";")] if parameters else [0]
        count = max(1, numbers[0])
        match final:
            case "A":
                self._row = max(0, self._row - count)
            case "B":
                self._row = min(self.rows - 1, self._row + count)
            case "C":
                self._column = min(self.columns - 1, self._column + count)
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = min(self.columns, count) - 1
            case "H":
                self._row = min(self.rows, count) - 1
                self._column = min(self.columns, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
            case "K":
                first, last = ((self._column, self.columns), (0, self._column + 1), (0, self.columns))[numbers[0]]
                self._lines[self._row][first:last] = [" "] * (min(last, self.columns) - first)
            case "J":
                if numbers[0] == 2:
                    self._lines = [[" "] * self.columns for _ in range(self.rows)]
                elif numbers[0] == 0:
                    self._lines[self._row][self._column :] = [" "] * (self.columns - self._column)
                    for row in range(self._row + 1, self.rows):
                        self._lines[row] = [" "] * self.columns
            case _:
                pass


class Terminal:
    """A command that runs in a terminal. Ends the command at the end of the block.

    Args:
        command: The command and its arguments.
        columns: Width of the terminal.
        rows: Height of the terminal.
        environment: Variables in addition to this process's.
        cwd: Folder of the command.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        columns: int,
        rows: int = 24,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.screen = Screen(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._code: int | None = None
        words = [str(word) for word in command]
        variables = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            variables.pop(name, None)
        size = struct.pack("HHHH", rows, columns, 0, 0)
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self._pid = os.fork()
        if self._pid == 0:
            with suppress(BaseException):
                os.login_tty(slave)
                os.chdir(cwd or ".")
                os.execvpe(words[0], words, variables)
            os._exit(127)
        os.close(slave)
        self._master = master

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Wait until the terminal shows `text`, over any number of lines."""
        self._read_until(lambda: squeeze(text) in squeeze(self.screen.text), timeout_s, f"{text!r}")

    def end(self, timeout_s: float = 60.0) -> int:
        """Wait until the command ends, and return its exit code, or minus the number of a signal."""
        self._read_until(lambda: self._code is not None, timeout_s, "the end of the command")
        assert self._code is not None
        return self._code

    def read(self, timeout_s: float = 0.2) -> bool:
        """Show what the command writes within `timeout_s`; return True unless it has ended."""
        if self._code is None and select.select([self._master], [], [], timeout_s)[0]:
            try:
                data = os.read(self._master, _READ_BYTES)
            except OSError:  # the command has closed its end
                data = b""
            self.screen.feed(self._decoder.decode(data))
            if not data:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code is None

    def _read_until(self, is_there: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_there():
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"no {what} within {timeout_s:.0f} s on this screen:\n{self.screen.text}"
            assert self._code is None, f"the command ended without {what}:\n{self.screen.text}"
            self.read(min(left_s, 0.5))
