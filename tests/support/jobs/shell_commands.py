"""The pages' own commands, and a shell to type them in as a reader would."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.packages.wheel import ROOT
from tests.support.servers.regroup_server import eventually

TIME = r"^\[ *\d+\.\d s\] "
"""How a line of `watch`, `run` and the demo begins, without a terminal."""
_LEFT_BY_IMPORTS = frozenset({"RAY_ENABLE_AUTO_CONNECT"})
"""Variables that modules of ours set when they are imported, as tests of the same process do: nobody has typed them."""
_SAID_WHEN_UP = {"serve": "^regroup serves at", "run": rf"{TIME}step 20\b"}
"""What to wait for after a command that goes on behind the shell."""
_START_S = 120.0
_COMMAND_S = 600.0
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Its path from the repository's root."""
    nth: int
    """Of those in the same languages on the page, from 0."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines without their comments; of a console, what stands behind the prompt."""
        lines = self.text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [typed for line in lines if (typed := line.partition(" # ")[0].strip())]

    def __str__(self) -> str:
        return f"{self.page}#{self.nth}"


def blocks(page: str, *languages: str, heading: str | None = None) -> list[Block]:
    """A page's fenced blocks in some languages, of the whole page or below a heading."""
    text = (ROOT / page).read_text()
    if heading is not None:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = [body for language, body in _FENCED.findall(text) if language in languages]
    return [Block(page, nth, body) for nth, body in enumerate(found)]


def commands(page: str, heading: str) -> list[str]:
    """What stands below a heading to be typed."""
    (block,) = blocks(page, "sh", heading=heading)
    return block.commands


@contextlib.contextmanager
def own_state(folder: Path) -> Generator[dict[str, str]]:
    """What activating the environment gives, with a state folder and port that are nobody else's; `down` at the end."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = {name: value for name, value in os.environ.items() if name not in _LEFT_BY_IMPORTS}
    own = {**typed, "PATH": path, "REGROUP_STATE_DIR": str(folder / "state"), "REGROUP_PORT": "0"}
    try:
        yield own
    finally:
        subprocess.run(["regroup", "down"], env=own, check=True, capture_output=True, timeout=90)


@dataclass(frozen=True)
class Shell:
    """A bash for each command."""

    cwd: Path
    environment: Mapping[str, str]
    outputs: Path
    """A folder for what commands print."""

    def __call__(self, command: str, *, cwd: Path | None = None, code: int = 0) -> str:
        """Type a command; returns what it printed, both streams. It must exit with `code`."""
        output = self.outputs / f"output-{uuid.uuid4().hex}"
        with output.open("wb") as file:  # a pipe would stay open in what `&` leaves behind
            done = subprocess.run(
                ["bash", "-c", command], cwd=cwd or self.cwd, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, timeout=_COMMAND_S, check=False,
            )  # fmt: skip
        assert done.returncode == code, f"{command} exited {done.returncode}: {output.read_text()}"
        if command.endswith("&"):
            said = _SAID_WHEN_UP[shlex.split(command)[1]]
            eventually(lambda: re.search(said, output.read_text(), re.MULTILINE), _START_S)
        return output.read_text()
