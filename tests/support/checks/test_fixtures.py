"""The leak check finds what it must find, and the PostgreSQL fixture serves."""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from regroup.service.local.leftovers import find_processes
from tests.support.checks import leaks
from tests.support.checks.descriptors import Descriptor, Snapshot
from tests.support.checks.job_leaks import ConnectionGrowth, DaemonResources, count_connections, count_kinds
from tests.support.checks.leaks import SESSION_VARIABLE, held

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def house(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run a test file under this project's conftest in a process of its own."""
    for name in [*os.environ]:  # the process belongs neither to this session nor to its coverage
        if name == "REGROUP_TEST_SESSION" or name.startswith(("PYTEST_XDIST_", "SLIPCOVER_")):
            monkeypatch.delenv(name)
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makeini(f"[pytest]\naddopts = -W ignore\npythonpath = {ROOT}")

    def run(source: str, *typed: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *typed)

    return run


AT_ONCE = pytest.mark.parametrize(
    "typed",
    [pytest.param((), marks=pytest.mark.slow, id="one after the other"), pytest.param(("-n", "2"), id="two at a time")],
)


@AT_ONCE
def test_leaks_fail_their_test_and_what_outlives_the_session_fails_the_run(
    house: Callable[..., pytest.RunResult], typed: tuple[str, ...]
) -> None:
    source = """
        import os, subprocess
        from pathlib import Path
        import pytest
        from tests.support.checks.leaks import held, leaked_since

        def test_seen():
            before = held()
            shared = Path("/dev/shm/regroup-test-leak")
            shared.touch()
            descriptor = os.open("/etc/hostname", os.O_RDONLY)
            print(leaked_since(before, within_s=0.2))
            shared.unlink()
            os.close(descriptor)
            assert leaked_since(before, within_s=0.2) == []

        def test_process(no_leaks):
            subprocess.Popen(["sleep", "77"], start_new_session=True)
    """
    result = house(source, *typed)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*descriptor * -> /etc/hostname*shared memory /dev/shm/regroup-test-leak*"])
    result.stdout.fnmatch_lines(["*left behind:*", "*process *: sleep 77*", "*outlived the tests*", "*: sleep 77"])
    detached = 'import subprocess\ndef test_it():\n    subprocess.Popen(["sleep", "78"], start_new_session=True)\n'
    outlived = house(detached, *typed)
    outlived.assert_outcomes(passed=1)
    assert outlived.ret == pytest.ExitCode.TESTS_FAILED
    outlived.stdout.fnmatch_lines(["*outlived the tests*", "*: sleep 78"])


@pytest.mark.parametrize("is_database", [False, True])
def test_shared_memory_of_other_sessions_is_not_a_leak(is_database: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"regroup-test-{os.urandom(4).hex()}"
    if is_database:  # databases of other tests may run at the same time
        monkeypatch.setattr(leaks, "_DATABASE", prefix)
    shared, unmapped = Path(f"/dev/shm/{prefix}"), Path(f"/dev/shm/{prefix}-unmapped")
    elsewhere = {**os.environ, SESSION_VARIABLE: "another"}
    opens = ["python3", "-c", f"open({str(shared)!r}, 'w'); held = open({str(shared)!r}); print(flush=True); input()"]
    other = subprocess.Popen(opens, env=elsewhere, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        unmapped.touch()
        assert other.stdout is not None and other.stdout.readline() == b"\n"
        assert shared.name not in held().shared_memory
        assert (unmapped.name in held().shared_memory) != is_database, (
            "a database keeps segments that no process has mapped"
        )
        other.communicate(b"\n")
        assert shared.name in held().shared_memory, "no other session uses it any more"
    finally:
        other.kill()
        shared.unlink()
        unmapped.unlink()


# Opens a memory file, a port, both ends of a TCP connection, and one end of a pipe and of a unix socket of ours.
HOLDER = """
import os, socket, sys
memory = os.memfd_create("held")
listening = socket.create_server(("127.0.0.1", 0))
connected = socket.create_connection(listening.getsockname()), listening.accept()
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_descriptors_of_a_process_are_listed_with_the_processes_at_their_other_end() -> None:
    ours, its = socket.socketpair()
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, text=True) as holder:  # pyright: ignore[reportCallIssue]
        its.close()
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        found = {descriptor.number: descriptor for descriptor in Snapshot().of(holder.pid)}
        ours.close()  # the process ends
    assert (found[0].kind, found[0].others) == ("socket", {os.getpid()})
    assert (found[1].kind, found[1].others) == ("pipe", {os.getpid()})
    own = [descriptor for number, descriptor in found.items() if number > 2]
    assert [descriptor.kind for descriptor in own if descriptor.kind != "socket"] == ["/memfd:held (deleted)"]
    assert [descriptor.port for descriptor in own if not descriptor.others and descriptor.kind == "socket"] == [port]
    assert [descriptor.others for descriptor in own if descriptor.others] == [{holder.pid}] * 2
    assert Snapshot().of(holder.pid) == []


def test_connections_are_counted_by_their_other_end_and_not_by_kind() -> None:
    file, port = Descriptor(3, "/dev/null", frozenset(), None), Descriptor(4, "socket:[1]", frozenset(), 80)
    one, two, elsewhere, ended = (Descriptor(5, "socket:[2]", frozenset(pids), None) for pids in ([7], [7], [8], []))
    assert count_kinds([file, port, one, two, elsewhere, ended]) == {"/dev/null": 1, "listening port": 1}
    assert count_connections([file, port, one, two, elsewhere, ended]) == {
        frozenset({7}): 2,
        frozenset({8}): 1,
        frozenset(): 1,
    }


NOBODY = 2**22 + 1
"""An id above the largest that Linux gives."""


def test_connections_that_grow_with_the_jobs_are_a_leak() -> None:
    def resources(count: int) -> DaemonResources:
        return DaemonResources({}, {NOBODY: Counter({frozenset({NOBODY}): count})}, frozenset())

    kept, growth = ConnectionGrowth(), ConnectionGrowth()
    for jobs in range(1, 7):
        kept.record(resources(2), jobs - 1)
        assert kept.leaks(resources(4), jobs) == [], "two that are opened late and kept"
    for jobs in range(1, 3):
        growth.record(resources(1 + jobs), jobs - 1)
        assert growth.leaks(resources(2 + jobs), jobs) == []
    assert growth.leaks(resources(5), 3) == [
        f"3 more connections of a process that has ended ({NOBODY}) to a process that has ended ({NOBODY}) after 3 jobs"
    ]


def test_a_detached_process_is_found_by_a_job_that_its_environment_or_folder_names(tmp_path: Path) -> None:
    job = f"job_{os.urandom(8).hex()}"
    (folder := tmp_path / job).mkdir()
    waits = ["sleep", "60"]
    by_environment = subprocess.Popen(waits, env={**os.environ, "SOME": f"/x/{job}/y"}, start_new_session=True)
    by_folder = subprocess.Popen(waits, cwd=folder, start_new_session=True)
    try:
        expected = {
            f"process {by_environment.pid} (sleep), by SOME=/x/{job}/y",
            f"process {by_folder.pid} (sleep), by {folder}",
        }
        deadline = time.monotonic() + 10  # the kernel may show no command for some moments of an exec
        while (found := set(find_processes([job]))) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found == expected
    finally:
        for process in (by_environment, by_folder):
            process.kill()
            process.wait()
    assert list(find_processes([job])) == []


@AT_ONCE
def test_a_group_that_cannot_run_skips_with_its_reason_or_fails_where_required(
    house: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("REGROUP_REQUIRE", raising=False)
    source = "import pytest\n@pytest.mark.prometheus\ndef test_it():\n    pass\n"
    source += "@pytest.mark.slow\ndef test_more():\n    pass\n"
    skipped = house(source, "-m", "not slow", *typed)
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["prometheus  1 skipped (no prometheus*", "slow        1 not asked for"])
    monkeypatch.setenv("REGROUP_REQUIRE", "postgres,prometheus")
    required = house(source, *typed)
    assert required.ret != 0
    required.stdout.fnmatch_lines(["*REGROUP_REQUIRE names prometheus*"])


@pytest.mark.postgres
async def test_the_postgres_fixture_serves_empty_databases(postgres_server: Any) -> None:
    urls = {postgres_server.create_database(), postgres_server.create_database()}
    assert len(urls) == 2
    for url in urls:
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            tables = text("select count(*) from pg_tables where schemaname = 'public'")
            assert (await connection.execute(tables)).scalar() == 0
        await engine.dispose()


def test_every_process_of_the_session_is_marked() -> None:
    inherited = subprocess.run(["printenv", "REGROUP_TEST_SESSION"], capture_output=True, text=True, check=True)
    assert inherited.stdout.strip() == os.environ["REGROUP_TEST_SESSION"]


@settings(max_examples=1)
@given(st.none())
def test_a_slow_example_does_not_fail_its_test(_: None) -> None:
    time.sleep(0.3)  # longer than hypothesis allows by default
