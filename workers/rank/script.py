"""An unmodified program as a rank, in the environment that `python` and torchrun would provide.

Environment variables tell it its place (`main.py` exports them). It sees all devices of the job on its node, and
`LOCAL_RANK` selects one of them. Its steps are counted from outside (`step_counter.py`).
"""

import atexit
import builtins
import importlib
import importlib.util
import os
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path

from regroup.workers.contract import rank_env
from regroup.workers.contract.error_classes import InputError
from regroup.workers.contract.messages import Done, Failed, Join, Joined
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.contract.rank_config import ScriptConfig
from regroup.workers.contract.rank_env import SCRIPT_FILE, SCRIPT_MODULE
from regroup.workers.contract.rank_error import ErrorClass, RankError
from regroup.workers.rank import own_process
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.step_counter import StepCounter
from regroup.workers.torch_internals import groups

_RAY_TRAIN_ADAPTER = "regroup.workers.rank.ray_train.fit"


def run(join: Join, channel: Channel, progress: ProgressPage) -> int:
    """Run the program as `__main__` and return its exit code, as `python` would.

    Raises:
        InputError: the file, module or folder does not exist on this node.
        BaseException: any exception of the program except SystemExit.
    """
    os.environ.update(rank_env.visible_devices(join))  # the zygote has not touched CUDA, so this still decides
    config = join.config.script or ScriptConfig()
    _enter(rank_env.folder(join), join)
    channel.send(Joined(join.rank, join.generation, time.time()))
    steps = StepCounter(join, channel, progress)
    steps.begin()
    groups.retain_destroyed_groups()
    program = _program(join, config.args)
    try:
        if config.kind == "ray_train":
            # Import by name: only these programs import ray, and `rank` does not depend on its adapter.
            adapter = importlib.import_module(_RAY_TRAIN_ADAPTER)
            adapter.run(join, channel, progress, steps, program)
        else:
            program()
    except SystemExit as error:
        if code := _exit_code(error):
            channel.send(Failed(join.rank, join.generation, _exit_error(error, code, progress)))
            finish_interpreter()
            return code
    finish_interpreter()
    if own_process.is_forked():
        return 0
    steps.end()
    channel.send(Done(join.rank, join.generation, steps.step, stopped=False))
    return 0


def finish_interpreter() -> None:
    """Do what an interpreter does at exit: join threads and call exit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]  # pyright: ignore  # also stops executor threads
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]


def _enter(folder: str, join: Join) -> None:
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            raise InputError(f"no folder {folder} on node {join.node_name}: {error.strerror}") from error


def _program(join: Join, args: Sequence[str]) -> Callable[[], None]:
    """Set `sys.argv` and `sys.path`, and return the function that runs the program."""
    if join.entry.startswith(SCRIPT_MODULE):
        _set_command_line(["-m", *args], str(Path.cwd()))
        return lambda: _run_module(join.entry.removeprefix(SCRIPT_MODULE), join)
    path = join.entry.removeprefix(SCRIPT_FILE)
    path_of_script = Path(path).absolute()
    _set_command_line([path, *args], str(path_of_script.parent))
    return lambda: _run_file(path_of_script, join)


def _run_file(path_of_script: Path, join: Join) -> None:
    try:
        source = path_of_script.read_bytes()
    except OSError as error:
        raise InputError(f"no script {path_of_script} on node {join.node_name}: {error.strerror}") from error
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=str(path_of_script),
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", str(path_of_script)),
        __cached__=None,
    )
    # Not runpy.run_path: it removes `__main__` before threads and exit handlers have finished with it.
    sys.modules["__main__"] = main
    exec(compile(source, str(path_of_script), "exec", dont_inherit=True), main.__dict__)


def _run_module(name: str, join: Join) -> None:
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise InputError(f"no module {name} in {Path.cwd()} or on the path of node {join.node_name}")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _set_command_line(argv: list[str], folder: str) -> None:
    sys.argv = argv
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr, flush=True)
    return 1


def _exit_error(error: SystemExit, code: int, progress: ProgressPage) -> RankError:
    detail = f": {error.code}" if isinstance(error.code, str) else ""
    step, phase = progress.read()
    return RankError(
        ErrorClass.USER,
        "SystemExit",
        f"the script exited with code {code}{detail[:4000]}",
        "",
        step,
        phase,
        time.time(),
    )
