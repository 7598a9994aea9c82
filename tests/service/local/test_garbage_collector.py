"""The garbage collector of a server, in a process of its own: it would change that of the tests."""

import subprocess
import sys

_PROGRAM = """
import gc, weakref
from regroup.service.local.garbage_collector import freeze_started_objects

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

before = cycle()
kept = [Node() for _ in range(1000)]
freeze_started_objects()
assert before() is None, "what is garbage at the start is collected"
assert gc.get_freeze_count() > 1000 and not any(isinstance(each, Node) for each in gc.get_objects())
later = cycle()
made = [[] for _ in range(gc.get_threshold()[0] + 1000)]
assert later() is None, "what requests leave behind is collected without a call"
"""


def test_started_objects_are_kept_and_garbage_of_requests_is_collected() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
