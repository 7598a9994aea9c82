"""The process that holds a generation's rendezvous store on a socket its agent has bound already.

Clients that connect before it serves wait in the socket's backlog instead of retrying.
"""

import datetime
import signal
import socket

import torch.distributed as dist


def main(fds: list[int]) -> int:
    """Target of the launcher: `fds[0]` is the listening socket. Serves until it is killed."""
    listener = socket.socket(fileno=fds[0])
    host, port = listener.getsockname()[:2]
    listener.detach()
    store = dist.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=300),
        master_listen_fd=fds[0],
    )
    signal.pause()
    del store  # until here: the server's threads live as long as the object
    return 0
