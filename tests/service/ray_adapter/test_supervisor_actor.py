"""The actor of the supervisor has the supervisor's calls, and its module is cheap to import."""

import inspect
import subprocess
import sys

from regroup.service.ray_adapter.supervisor_actor import SupervisorActor
from regroup.service.supervisor.supervisor import Supervisor


def test_the_actor_has_the_calls_of_the_supervisor() -> None:
    def calls(of: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(method)
            for name, method in vars(of).items()
            if inspect.iscoroutinefunction(method) and not name.startswith("_")
        }

    assert calls(SupervisorActor) == calls(Supervisor)


def test_the_module_imports_no_slow_packages() -> None:
    code = "import sys; import regroup.service.ray_adapter.supervisor_actor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith(("regroup.", "pydantic", "ray", "torch"))}
    assert loaded == {
        "regroup.service", "regroup.service.ray_adapter", "regroup.service.ray_adapter.supervisor_actor",
    }  # fmt: skip
