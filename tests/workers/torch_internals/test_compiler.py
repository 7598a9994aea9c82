"""Settings of the compiler exist, and importing this module costs nothing."""

import subprocess
import sys

_LOADED = """
import sys
from regroup.workers.torch_internals import compiler
assert "torch._dynamo" not in sys.modules and "torch._inductor.config" not in sys.modules
compiler.import_dynamo()
assert "torch._dynamo" in sys.modules
compiler.use_one_thread()
compiler.limit_kept_activations(0.5)
from torch._functorch import config as graphs
from torch._inductor import config as inductor
print(inductor.compile_threads, graphs.activation_memory_budget)
"""


def test_settings_apply_and_are_imported_on_use() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["1", "0.5"]
