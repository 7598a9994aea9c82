"""A double of an agent and its zygote: keeps the buffers of ranks, forks the ranks, and answers them.

The fixture in conftest.py starts it with a socket as descriptor number argv[1]. It reads one JSON request per line. It
imports torch once and runs a warm-up step with one thread. After that it runs no tensor operation itself, because a
fork after an OpenMP region hangs.
"""

import importlib
import json
import os
import selectors
import socket
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from state_double import StateDouble, saved_state
from torch import distributed as dist

from regroup.workers.agent.checkpoints.stored_state import open_checkpoint
from regroup.workers.contract import messages as contract
from regroup.workers.contract.codec import build, plain
from regroup.workers.contract.error_classes import classify
from regroup.workers.contract.messages import (
    Buffers,
    Done,
    FaultDue,
    FaultGranted,
    Join,
    Message,
    MirrorDue,
    Pinned,
    PinnedFor,
    StepRow,
    Stop,
)
from regroup.workers.contract.rank_config import RankConfig, WarmupConfig
from regroup.workers.contract.rank_error import ErrorClass
from regroup.workers.rank.agent_channel import AgentGone, Channel
from regroup.workers.rank.context import Context
from regroup.workers.state.shard_buffer import Pin, ShardBuffer
from regroup.workers.train import trainer  # noqa: F401  (imported before the fork)
from regroup.workers.train.warmup import warm_up

TIMEOUT = timedelta(seconds=60)
LATER = {"source": "later"}


def serve(sock: socket.socket) -> None:
    memory: dict[str, dict[int, list[int]]] = {}
    with sock.makefile("rw") as lines:
        for line in lines:
            request = json.loads(line)
            try:
                reply = run(request, memory) if request["do"] == "run" else task(request, memory)
            except LookupError as missing:
                reply = {"error": str(missing)}  # only the test that requested a missing item fails
            lines.write(json.dumps(reply) + "\n")
            lines.flush()


def run(request: dict[str, Any], memory: dict[str, dict[int, list[int]]]) -> dict[str, Any]:
    """Run one generation until all ranks have ended."""
    held = memory.setdefault(request["memory"], {})
    state = retained_state(request, held) if is_resharded(request) else stored_state(request)
    selector = selectors.DefaultSelector()
    pids: dict[int, int] = {}
    socks: list[socket.socket] = []
    store = tempfile.mktemp(prefix="regroup-test-store-")
    for rank in range(request["world_size"]):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in socks:
                other.close()
            os._exit(rank_life(rank, request, theirs, store))
        theirs.close()
        pids[rank] = pid
        socks.append(ours)
        selector.register(ours, selectors.EVENT_READ, rank)
    messages: list[dict[str, Any]] = []
    error, requested, mirrored = "", 0, list[int]()
    while selector.get_map():
        for key, _ in selector.select():
            rank, ours = int(key.data), socks[int(key.data)]
            try:
                data, fds, _, _ = socket.recv_fds(ours, 1 << 20, 8)
            except ConnectionError:
                data, fds = b"", list[int]()
            if not data:
                selector.unregister(ours)
                continue
            if error:
                continue  # sent before the channels were closed: no rank waits for the reply
            message = contract.decode(data)
            messages.append(contract.to_json(message))
            try:
                if isinstance(message, contract.StateCatalogRequest | contract.StateRequest):
                    assert state is not None, "the set is in the buffers of the ranks"
                    answer_state(message, socks, state, held, fds)
                else:
                    answer(message, rank, ours, request, held)
            except LookupError as missing:
                # Without an answer the ranks end; only the test that requested a missing item fails.
                error = str(missing)
                for other in socks:
                    other.shutdown(socket.SHUT_RDWR)
            if isinstance(message, StepRow) and message.step == request.get("stop_at"):
                for other in socks:
                    other.send(contract.encode(Stop("test", request.get("save", False))))
            if isinstance(message, Pinned) and message.purpose is PinnedFor.MIRROR:
                mirrored.append(message.step)
            is_held = len(mirrored) == requested * request["world_size"]
            if isinstance(message, StepRow) and is_held and requested < request.get("mirrors", 0):
                requested += 1  # the one before is held by all
                socks[0].send(contract.encode(MirrorDue()))
    codes = [os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1]) for rank in sorted(pids)]
    for ours in socks:
        ours.close()
    Path(store).unlink(missing_ok=True)
    return {"error": error} if error else {"codes": codes, "messages": messages}


def answer(
    message: Message,
    rank: int,
    ours: socket.socket,
    request: dict[str, Any],
    held: dict[int, list[int]],
) -> None:
    if isinstance(message, contract.BuffersRequest):
        fds = held.setdefault(rank, [os.memfd_create(f"test-{rank}") for _ in range(request.get("buffers", 3))])
        source = -1
        restore = request["restore"]
        if restore["source"] == "memory" and not is_resharded(request):
            source = find(held, rank, restore)
        socket.send_fds(ours, [contract.encode(Buffers(len(fds), source))], fds)
    elif isinstance(message, contract.Prepared):
        lock = os.path.join(tempfile.gettempdir(), f"regroup-test-device-{os.getpid()}-{rank}")  # noqa: PTH118
        ours.send(contract.encode(contract.Begin(contract.Restore(**request["restore"]), lock)))
    elif isinstance(message, contract.SourceReleaseRequest):
        ours.send(contract.encode(contract.StateReply()))
    elif isinstance(message, FaultDue):
        ours.send(contract.encode(FaultGranted(message.index, True)))
    elif isinstance(message, Pinned) and message.purpose is PinnedFor.MIRROR:
        pass  # no mirror takes them: they stay pinned
    elif isinstance(message, Pinned) and str(message.step) not in request.get("release_after", {}):
        ShardBuffer(os.dup(held[rank][message.buffer])).release(Pin.CHECKPOINT)
    elif isinstance(message, StepRow) and message.step in request.get("release_after", {}).values():
        for fds in held.values():
            for fd in fds:
                ShardBuffer(os.dup(fd)).release(Pin.CHECKPOINT)


def is_resharded(request: dict[str, Any]) -> bool:
    is_other = request.get("source_world", request["world_size"]) != request["world_size"]
    return request["restore"]["source"] == "memory" and (is_other or request.get("from_another_split", False))


def retained_state(request: dict[str, Any], held: dict[int, list[int]]) -> StateDouble:
    """Retain all buffers, as `_retained(rank)`, so that the new ranks get others. Return the set in them."""
    world_size = request.get("source_world", request["world_size"])
    for rank in [rank for rank in held if rank >= 0]:
        held.setdefault(_retained(rank), []).extend(held.pop(rank))
    places = {rank: (_retained(rank), _number(held, _retained(rank), request["restore"])) for rank in range(world_size)}
    shards = {rank: held[place][number] for rank, (place, number) in places.items() if number is not None}
    if len(shards) < world_size:
        raise LookupError(f"only the ranks {sorted(shards)} of {world_size} have the set {request['restore']}")
    return StateDouble(saved_state(shards), request["world_size"])


def stored_state(request: dict[str, Any]) -> StateDouble | None:
    """Return the checkpoint from which the ranks restore, if they do."""
    if request["restore"]["source"] != "checkpoint":
        return None
    world_size = request["world_size"]
    return StateDouble(open_checkpoint(request["checkpoint_dir"], range(world_size), world_size), world_size)


def answer_state(
    message: contract.StateCatalogRequest | contract.StateRequest,
    socks: list[socket.socket],
    state: StateDouble,
    held: dict[int, list[int]],
    fds: list[int],
) -> None:
    reply = [contract.encode(contract.StateReply())]
    if isinstance(message, contract.StateCatalogRequest):
        socket.send_fds(socks[message.rank], reply, [state.catalog(message.rank)])
    elif state.request(message.rank, message, fds[0], held[message.rank][message.buffer]):
        for ours in socks:
            ours.send(reply[0])


def find(held: dict[int, list[int]], rank: int, restore: dict[str, Any]) -> int:
    if (number := _number(held, rank, restore)) is not None:
        return number
    if (number := _number(held, _retained(rank), restore)) is not None:
        held.setdefault(rank, []).append(held[_retained(rank)].pop(number))
        return len(held[rank]) - 1
    raise LookupError(f"no set of rank {rank} for {restore}")


def _number(held: dict[int, list[int]], place: int, restore: dict[str, Any]) -> int | None:
    for number, fd in enumerate(held.get(place, [])):
        buffer = ShardBuffer(os.dup(fd))
        header = buffer.header()
        if buffer.verify() and (header.step, header.generation) == (restore["step"], restore["generation"]):
            return number
    return None


def _retained(rank: int) -> int:
    return -1 - rank


def task(request: dict[str, Any], memory: dict[str, dict[int, list[int]]]) -> dict[str, Any]:
    """Run a zygote task in a fork, with descriptors of `ranks` of `memory` at `restore`."""
    held = memory.get(request.get("memory", ""), {})
    fds = [held[rank][find(held, rank, request["restore"])] for rank in request.get("ranks", [])]
    if "parts" in request:
        fds = [os.memfd_create("parts")]
        os.write(fds[0], json.dumps(request["parts"]).encode())
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            module, _, name = request["target"].partition(":")
            result = {"ok": getattr(importlib.import_module(module), name)(request["args"], fds)}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(result))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as inp:
        result = json.loads(inp.read())
    os.waitpid(pid, 0)
    return result


class NoProgress:
    def set(self, step: int, phase: str) -> None:
        """Do nothing."""


def rank_life(rank: int, request: dict[str, Any], sock: socket.socket, store: str) -> int:
    channel = Channel(sock)
    world_size, device = request["world_size"], torch.device(request.get("device", "cpu"))
    torch.set_num_threads(1)
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = request.get("backend", "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl")
        dist.init_process_group(
            backend, store=dist.FileStore(store, world_size), rank=rank, world_size=world_size, timeout=TIMEOUT
        )
        join = Join(
            job_id="test",
            generation=request["generation"],
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            local_world_size=world_size,
            node_rank=0,
            node_count=1,
            layout=request["layout"],
            device=device.type,
            store_host="",
            store_port=0,
            restore=contract.Restore(**(LATER if request.get("is_prepared") else request["restore"])),
            entry=request["entry"],
            config=build(RankConfig, request["config"]),
            dataset=request["dataset"],
            faults_fired=tuple(request.get("faults_fired", ())),
        )
        context = Context(join, channel, device, NoProgress())
        module, _, name = request["entry"].partition(":")
        getattr(importlib.import_module(module), name)(context)
        channel.send(Done(rank, context.generation, context.step, context.stopped, context.result))
        dist.barrier()
        dist.destroy_process_group()
        return 0
    except AgentGone:
        return 3
    except BaseException as error:
        if request.get("show_errors", True):
            traceback.print_exc()
        channel.send(
            contract.Failed(
                rank,
                request["generation"],
                contract.RankError(
                    classify(error) if isinstance(error, Exception) else ErrorClass.USER,
                    type(error).__name__,
                    str(error),
                    "",
                    0,
                    "",
                    0.0,
                    getattr(error, "details", {}),
                ),
            )
        )
        return 1


def warm_up_all() -> None:
    """Run the warm-up steps, as the zygote does for its job, so that ranks start warm."""
    model = {"family": "transformer", "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False}
    for is_tensor_parallel in (False, True):
        warm_up(plain(WarmupConfig(RankConfig(model=model), is_tensor_parallel)))


def main(sock: socket.socket) -> None:
    """Warm up, and serve until the socket is closed."""
    warm_up_all()
    serve(sock)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(socket.socket(fileno=int(sys.argv[1])))
