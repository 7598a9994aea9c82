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


def bind(host: str, ports: range | None) -> socket.socket:
    """A listening socket on `host`, on a free port, or on a free one of `ports`.

    Raises:
        OSError: no port of the range is free.
    """
    for port in ports if ports is not None else (0,):
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            sock.close()
            continue
        sock.listen(4096)
        return sock
    raise OSError(f"no free port in {ports} on {host}; widen the port range setting")
