"""What all tests share: which groups can run here and a summary of which did, PostgreSQL, and the guard against leaks.

A group is a marker whose tests need something of the machine. Where it is missing they skip and the summary says so;
`REGROUP_REQUIRE=postgres,prometheus` turns such a skip into a failure, as CI does.
"""

import contextlib
import functools
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

# ------------------------------------------------------------------------------------------------ groups


def _no_cuda() -> str | None:
    return None if Path("/proc/driver/nvidia/version").exists() else "no NVIDIA driver"


def _no_namespaces() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"no {program} (apt-get install util-linux iproute2)"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"unshare is not allowed: {tried.stderr.strip()}"


def _no_postgres() -> str | None:
    return None if _postgres_folder() else "no initdb (apt-get install postgresql)"


def _no_prometheus() -> str | None:
    return None if shutil.which("prometheus") else "no prometheus (apt-get install prometheus)"


def _no_kubernetes() -> str | None:
    if shutil.which("kubectl") is None:
        return "no kubectl (apt-get install kubernetes-client)"
    described = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=False)
    known = "Kustomize Version:" in described.stdout
    return None if known else "this kubectl is older than 1.24: its kustomize does not know our base"


GROUPS: Mapping[str, Callable[[], str | None]] = {
    "cuda": _no_cuda,
    "namespaces": _no_namespaces,
    "postgres": _no_postgres,
    "prometheus": _no_prometheus,
    "kubernetes": _no_kubernetes,
}
"""Marker of each group, and what tells why it cannot run here (None: it can)."""

_missing = functools.cache(lambda group: GROUPS[group]())
_outcomes = pytest.StashKey[Counter[tuple[str, str]]]()
_outlived = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_outcomes] = Counter()
    os.environ[SESSION_VARIABLE] = SESSION


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("REGROUP_REQUIRE", "").split(",")
    for group in GROUPS:
        if item.get_closest_marker(group) and (reason := _missing(group)):
            if group in required:
                pytest.fail(f"REGROUP_REQUIRE names {group}, but: {reason}", pytrace=False)
            pytest.skip(f"{group}: {reason}")


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        for group in (*GROUPS, "slow"):
            if item.get_closest_marker(group):
                item.config.stash[_outcomes][group, "not asked for"] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        for group in (*GROUPS, "slow"):
            if item.get_closest_marker(group):
                item.config.stash[_outcomes][group, report.outcome] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash[_outcomes]
    lines: list[str] = []
    for group in (*GROUPS, "slow"):
        counts = [f"{count} {outcome}" for (name, outcome), count in sorted(outcomes.items()) if name == group]
        if counts:
            why = f" ({reason})" if group in GROUPS and (reason := _missing(group)) else ""
            lines.append(f"{group:<11} {', '.join(counts)}{why}")
    if lines:
        terminalreporter.section("groups that need something of the machine")
        for line in lines:
            terminalreporter.write_line(line)
    if outlived := config.stash.get(_outlived, []):
        terminalreporter.section("processes that outlived the tests (killed now)", red=True)
        for line in outlived:
            terminalreporter.write_line(line)


# ------------------------------------------------------------------------------------------------ leaks

SESSION_VARIABLE = "REGROUP_TEST_SESSION"
SESSION = uuid.uuid4().hex
"""Every process that a test starts inherits this, however it is detached: that is how its leftovers are found."""


@dataclass(frozen=True)
class Held:
    """What the test session holds at one moment."""

    processes: Mapping[int, str]
    """Command line of every process that descends from this session, by pid, without the session itself."""
    descriptors: frozenset[str]
    """Open files of the test process, as `fd -> target`."""
    shared_memory: frozenset[str]
    """Names under /dev/shm."""

    def beyond(self, before: "Held") -> list[str]:
        """One line for each thing held now and not before."""
        return [
            *(f"process {pid}: {line}" for pid, line in self.processes.items() if pid not in before.processes),
            *(f"descriptor {name}" for name in sorted(self.descriptors - before.descriptors)),
            *(f"shared memory /dev/shm/{name}" for name in sorted(self.shared_memory - before.shared_memory)),
        ]


def held() -> Held:
    """Look at /proc and /dev/shm now."""
    return Held(_session_processes(), _descriptors(), frozenset(path.name for path in Path("/dev/shm").iterdir()))


def leaked_since(before: Held, within_s: float = 5.0) -> list[str]:
    """What is still held beyond `before` after at most `within_s` seconds; empty as soon as nothing is."""
    deadline = time.monotonic() + within_s
    while (leaked := held().beyond(before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return leaked


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test if it leaves a process, descriptor or shared memory behind."""
    before = held()
    yield
    if leaked := leaked_since(before):
        pytest.fail("left behind:\n  " + "\n  ".join(leaked), pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Processes that outlived the tests fail the run by name, and end here."""
    deadline = time.monotonic() + 5
    while (left := _session_processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    session.config.stash[_outlived] = [f"{pid}: {line}" for pid, line in left.items()]
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _session_processes() -> dict[int, str]:
    needle = f"{SESSION_VARIABLE}={SESSION}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            if pid == os.getpid() or needle not in (folder / "environ").read_bytes():
                continue
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if "multiprocessing.resource_tracker" not in line:  # ends with the test process by itself
                found[pid] = line[:200]
    return found


def _descriptors() -> frozenset[str]:
    names: set[str] = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if not target.startswith(f"/proc/{os.getpid()}"):
                names.add(f"{link.name} -> {target}")
    return frozenset(names)


# ------------------------------------------------------------------------------------------------ PostgreSQL


@dataclass(frozen=True)
class PostgresServer:
    """A server of this session alone, on loopback, without fsync."""

    binaries: Path
    port: int
    socket_folder: Path

    def create_database(self) -> str:
        """Make an empty database and return its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        command = [self.binaries / "createdb", "-h", self.socket_folder, "-p", str(self.port), "-U", "regroup", name]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return f"postgresql+asyncpg://regroup@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL; mark the test `postgres`, so that it skips where there is none."""
    binaries = _postgres_folder()
    if binaries is None:
        pytest.skip("postgres: no initdb (apt-get install postgresql)")
    # initdb refuses root: the server runs as a user of lower rights, in a folder which that user can reach.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="regroup-pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    port = free_port()
    data = folder / "data"
    options = ["--auth=trust", "--username=regroup", "--no-sync", "--encoding=UTF8", "--locale=C"]
    server = None
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, *options], check=True, capture_output=True, text=True, user=user
        )
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (folder / "log").open("wb")
        server = subprocess.Popen([binaries / "postgres", "-D", data, *flags], user=user, stdout=log, stderr=log)
        log.close()
        _wait_for_postgres(binaries, folder, port, server)
        yield PostgresServer(binaries, port, folder)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown
            server.wait(timeout=20)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody held a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _postgres_folder() -> Path | None:
    """Where initdb is. Debian keeps it off PATH, by version."""
    on_path = shutil.which("initdb")
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    newest = max(folders, key=lambda folder: int(folder.parent.name), default=None)
    return Path(on_path).resolve().parent if on_path else newest


def _wait_for_postgres(binaries: Path, folder: Path, port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    ready = [binaries / "pg_isready", "-q", "-h", folder, "-p", str(port), "-U", "regroup"]
    while subprocess.run(ready, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"PostgreSQL did not start as {getpass.getuser()}: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)
