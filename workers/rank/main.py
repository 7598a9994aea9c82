"""The life of a rank: boot → JOIN → prepare(device) → run.

Nothing before JOIN depends on rank, world size or generation, so a booted rank may wait as a standby. A rank that is
prepared while the generation before it trains waits later (`prepared_start.py`).
"""

import contextlib
import datetime
import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from regroup.workers.contract import rank_env
from regroup.workers.contract.error_classes import LoopFailed, classify, details_of, is_from_collective
from regroup.workers.contract.messages import Done, Failed, Join, Joined, Phase
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.contract.rank_error import ErrorClass, RankError
from regroup.workers.rank import flight_recorder, own_process, script, user_function
from regroup.workers.rank.agent_channel import AgentGone, Channel
from regroup.workers.rank.context import Context
from regroup.workers.rank.malloc_tuning import retain_freed_memory
from regroup.workers.rank.prepared_start import builds_before, is_prepared, wait_for_begin
from regroup.workers.rank.state_requests import StateLostError
from regroup.workers.torch_internals import groups

_TRACEBACK_CHARACTERS = 16_000
_OUR_FILES = (__file__, user_function.__file__, script.__file__, "<frozen runpy>")
EXIT_FAILED = 1
EXIT_ORPHANED = 3


def main(fds: list[int]) -> int:
    """Run a rank and return its exit code.

    Args:
        fds: descriptors of the agent's socket, the progress page, and the socket for requests of recent collectives.
    """
    own_process.claim()
    channel = Channel(socket.socket(fileno=fds[0]))
    progress = ProgressPage(fds[1])
    try:
        join = channel.receive()
        assert isinstance(join, Join), f"a rank's first message is Join, not {join!r}"
        flight_recorder.limit_buffer(join.device)
        flight_recorder.start_responder(fds[2])
        return _run(join, channel, progress)
    except AgentGone:
        return EXIT_ORPHANED


def _run(join: Join, channel: Channel, progress: ProgressPage) -> int:
    try:
        progress.set(join.restore.step, Phase.JOIN)
        os.environ.update(rank_env.variables(join))
        if join.device == "cpu":
            retain_freed_memory()
        if rank_env.is_script(join.entry):
            return script.run(join, channel, progress)
        if is_prepared(join) and join.device != "cpu":
            join = wait_for_begin(join, channel, progress)
        device = _prepare(join)
        _form_process_group(join, device)
        function = _load(join.entry)
        if is_prepared(join) and not builds_before(join):
            join = wait_for_begin(join, channel, progress)
        if not is_prepared(join):
            channel.send(Joined(join.rank, join.generation, time.time()))
        context = Context(join, channel, device, progress)
        function(context)
        if own_process.is_forked():
            return 0  # the training function returned here, too
        progress.set(context.step, Phase.DONE)
        channel.send(Done(join.rank, join.generation, context.step, context.stopped, context.result))
        dist.barrier()  # close no socket while a peer still reads from it
        groups.retain_all()
        dist.destroy_process_group()
        return 0
    except AgentGone:
        raise
    except SystemExit as error:
        if error.code in (None, 0):
            channel.send(Done(join.rank, join.generation, join.restore.step, stopped=False))
            return 0
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    except BaseException as raised:
        error = raised.error if isinstance(raised, LoopFailed) else raised
        with contextlib.suppress(OSError, ValueError):  # the disk of its log may be full, or the stream closed
            traceback.print_exception(_without_our_frames(error))
            sys.stderr.flush()
        if not own_process.is_forked():
            _report_failure(error, join, channel, progress)
        if rank_env.is_script(join.entry):
            script.finish_interpreter()
        return EXIT_FAILED


def _report_failure(error: BaseException, join: Join, channel: Channel, progress: ProgressPage) -> None:
    entered = flight_recorder.recent_collectives() if is_from_collective(error) else []
    channel.send(Failed(join.rank, join.generation, _report(error, progress), entered))


def _prepare(join: Join) -> torch.device:
    if join.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("REGROUP_DEVICE_INDEX", "0")))
    torch.cuda.set_device(device)
    return device


def _form_process_group(join: Join, device: torch.device) -> None:
    timeout = datetime.timedelta(seconds=float(os.environ.get("REGROUP_COLLECTIVE_TIMEOUT_S", "300")))
    store = dist.TCPStore(join.store_host, join.store_port, is_master=False, timeout=timeout)
    # State is saved and decisions are made over gloo, even where training uses NCCL.
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"generation-{join.generation}", store),
        rank=join.rank,
        world_size=join.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )


def _load(entry: str) -> Callable[[Context], Any]:
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def _report(error: BaseException, progress: ProgressPage) -> RankError:
    text = "".join(traceback.format_exception(_without_our_frames(error)))
    step, phase = progress.read()
    return RankError(
        error_class=classify(error) if isinstance(error, Exception) else ErrorClass.USER,
        kind=type(error).__name__,
        message=str(error)[:4000],
        traceback=text[-_TRACEBACK_CHARACTERS:],
        step=step,
        phase=phase,
        time_s=time.time(),
        details=details_of(error),
        failed_holders=error.failed_holders if isinstance(error, StateLostError) else (),
    )


def _without_our_frames(error: BaseException) -> BaseException:
    """Drop the leading frames of regroup, so that the traceback begins in the training function or script."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in _OUR_FILES and frame.tb_next is not None:
        frame = frame.tb_next
    return error.with_traceback(frame)
