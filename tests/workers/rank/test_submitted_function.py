"""A function read back where there is no cloudpickle, or another Python."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.function_jobs import MODULE, write
from regroup.api.client.function_pickle import pickle_function
from regroup.workers.rank.submitted_function import ABOUT, WrongPythonError, load

SCRIPT = """
import linecache, sys
import regroup
factor = 3

def triple(x):
    return factor * x

def train(run):
    if run is None:
        raise ValueError("nothing to run")
    return triple(run)

from pathlib import Path
from regroup.api.client.function_jobs import write
from regroup.api.client.function_pickle import pickle_function
write(pickle_function(train), "train", Path(sys.argv[1]))
"""
READ = f"""
import sys, traceback
sys.path.insert(0, sys.argv[1])
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cloudpickle" and path is None and not sys.path[0].endswith("{MODULE}"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NotInstalled())
try:
    import cloudpickle
    raise SystemExit("there is one")
except ModuleNotFoundError:
    pass
from {MODULE} import train
import cloudpickle
print(train(2), cloudpickle.__file__, "torch" in sys.modules, "httpx2" in sys.modules)
try:
    train(None)
except ValueError:
    traceback.print_exc()
"""


def run(*command: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=True)


def test_a_function_runs_without_cloudpickle_and_tracebacks_show_its_lines(tmp_path: Path) -> None:
    script, read, folder = tmp_path / "mine.py", tmp_path / "read.py", tmp_path / "sent"
    folder.mkdir()
    script.write_text(SCRIPT)
    read.write_text(READ)
    run(script, folder)
    script.unlink()  # no node has it
    done = run(read, folder)
    value, home, *imported = done.stdout.split()
    assert value == "6" and Path(home).is_relative_to(folder / MODULE) and imported == ["False", "False"]
    assert 'raise ValueError("nothing to run")' in done.stderr


def test_another_python_is_refused_with_both_versions(tmp_path: Path) -> None:
    write(pickle_function(len), "train", tmp_path)
    about = tmp_path / MODULE / ABOUT
    about.write_text(json.dumps({**json.loads(about.read_text()), "python": "3.9.1"}))
    with pytest.raises(WrongPythonError, match=r"submitted from Python 3\.9\.1, and the job's interpreter .* Python 3"):
        load(tmp_path / MODULE)
