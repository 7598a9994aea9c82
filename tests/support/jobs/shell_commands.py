"""The commands of pages, and a shell to type them as a reader would."""

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

from regroup.service.local import api_token
from tests.support.packages.wheel import ROOT
from tests.support.servers.regroup_server import eventually

TIME = r"^\[ *\d+\.\d s\] "
"""Start of a line of `watch`, `run` and the demo, without a terminal."""
_OF_TESTS = frozenset({"RAY_ENABLE_AUTO_CONNECT", "REGROUP_RAY_DASHBOARD"})
"""Variables that tests set, or our modules when tests import them. A reader's shell does not have them."""
_READY_LINES = {"serve": "^regroup serves at", "run": rf"{TIME}step 20\b"}
"""Output to wait for after a command in the background."""
_START_S = 120.0
_COMMAND_S = 600.0
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Path from the repository's root."""
    nth: int
    """Number among the blocks in the same languages on the page, from 0."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Lines without their comments; of a console, the text after the prompt."""
        lines = self.text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [typed for line in lines if (typed := line.partition(" # ")[0].strip())]

    def __str__(self) -> str:
        return f"{self.page}#{self.nth}"


def blocks(page: str, *languages: str, heading: str | None = None) -> list[Block]:
    """Return a page's fenced blocks in some languages, of the whole page or below a heading."""
    text = (ROOT / page).read_text()
    if heading is not None:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = [body for language, body in _FENCED.findall(text) if language in languages]
    return [Block(page, nth, body) for nth, body in enumerate(found)]


def commands(page: str, heading: str) -> list[str]:
    """Return the commands below a heading."""
    (block,) = blocks(page, "sh", heading=heading)
    return block.commands


@contextlib.contextmanager
def own_state(folder: Path) -> Generator[dict[str, str]]:
    """Yield the variables of an activated environment with its own state folder and port; call `down` at the end."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = {name: value for name, value in os.environ.items() if name not in {*_OF_TESTS, *api_token.VARIABLES}}
    own = {**typed, "PATH": path, "REGROUP_STATE_DIR": str(folder / "state"), "REGROUP_PORT": "0"}
    try:
        yield own
    finally:
        subprocess.run(["regroup", "down"], env=own, check=True, capture_output=True, timeout=90)


@dataclass(frozen=True)
class Shell:
    """Runs each command in a new bash."""

    cwd: Path
    environment: Mapping[str, str]
    outputs: Path
    """Folder for the outputs of commands."""

    def __call__(self, command: str, *, cwd: Path | None = None, code: int = 0) -> str:
        """Run a command; return its output, both streams. It must exit with `code`."""
        output = self.outputs / f"output-{uuid.uuid4().hex}"
        with output.open("wb") as file:  # a process in the background would hold a pipe open
            done = subprocess.run(
                ["bash", "-c", command], cwd=cwd or self.cwd, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, timeout=_COMMAND_S, check=False,
            )  # fmt: skip
        assert done.returncode == code, f"{command} exited {done.returncode}: {output.read_text()}"
        if command.endswith("&"):
            ready = next(_READY_LINES[word] for word in shlex.split(command) if word in _READY_LINES)
            eventually(lambda: re.search(ready, output.read_text(), re.MULTILINE), _START_S)
        return output.read_text()
