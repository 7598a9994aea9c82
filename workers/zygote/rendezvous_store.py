"""Process that serves a generation's rendezvous store on a socket that its agent has bound.

Clients that connect early wait in the backlog of the socket instead of retrying.
"""

import datetime
import signal
import socket

import torch.distributed as dist


def main(fds: list[int]) -> int:
    """Serve on the listening socket `fds[0]` until the process is killed. A target of the launcher."""
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
    del store  # the server's threads live as long as this object
    return 0
