"""Open connections that can be aborted together, from any thread."""

import threading

from regroup.workers.agent.transfer.connection import Connection


class ConnectionSet:
    """Connections of one transfer, or of one server. After `abort`, new connections are aborted too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections = set[Connection]()
        self._is_aborted = False

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        with self._lock:
            self._connections.add(connection)
            is_aborted = self._is_aborted
        if is_aborted:
            connection.abort()

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        with self._lock:
            self._connections.discard(connection)

    def abort(self) -> None:
        """End all connections. Threads that use them get an error."""
        with self._lock:
            self._is_aborted = True
            connections = list(self._connections)
        for connection in connections:
            connection.abort()
