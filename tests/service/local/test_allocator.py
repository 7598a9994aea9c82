"""The return of unused memory to the operating system, measured in a process of its own."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import re, sys
from pathlib import Path
from regroup.service.local.allocator import trim_memory

def used_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

before = used_mib()
blocks = [bytes(2000) for _ in range(60_000)]
kept = blocks[::100] + blocks[-1:]
del blocks
kept_by_malloc = used_mib() - before
trimmed = trim_memory()
print(trimmed, kept_by_malloc, used_mib() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another allocator")
def test_memory_between_pieces_in_use_returns_to_the_operating_system() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    trimmed, kept_mib, left_mib = done.stdout.split()
    assert trimmed == "True"
    assert float(kept_mib) > 80, "the C library keeps what lies between pieces in use"
    assert float(left_mib) < 30


_THREADS = """
import re, threading
from pathlib import Path
from regroup.service.local.allocator import limit_arenas

limited = limit_arenas() if LIMIT else None

def arenas():
    # Each further arena reserves 64 MiB of addresses, of which it uses a part.
    ranges = re.findall(r"^(\\w+)-(\\w+) ", Path("/proc/self/maps").read_text(), re.M)
    return len([1 for low, high in ranges if 60 << 20 <= int(high, 16) - int(low, 16) <= 64 << 20])

def work():
    kept.append([bytes(2000) for _ in range(100)])
    meet.wait()

kept, meet = [], threading.Barrier(13)
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads:
    thread.start()
meet.wait()
print(limited, arenas())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has another allocator")
@pytest.mark.parametrize("limit", [False, True])
def test_threads_share_few_arenas(limit: bool) -> None:
    program = _THREADS.replace("LIMIT", str(limit))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    limited, arenas = done.stdout.split()
    assert limited == ("True" if limit else "None")
    assert int(arenas) <= 2 if limit else int(arenas) > 4
