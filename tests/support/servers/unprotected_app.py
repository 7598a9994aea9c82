"""A server on loopback that trusts every request, as a control: pages of other origins can read and write it."""

import base64
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Constant of the handshake (RFC 6455, section 1.3)."""


@dataclass
class UnprotectedApp:
    """A running server."""

    marker: str
    """Text that every read returns."""
    url: str = ""
    changes: list[str] = field(default_factory=list[str])
    """Paths of the requests that changed something."""


@contextlib.contextmanager
def running_unprotected_app(marker: str) -> Iterator[UnprotectedApp]:
    """Start a server; end it when the block ends."""
    app = UnprotectedApp(marker)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._send_frame()
            else:
                self._answer(200, marker)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            app.changes.append(self.path)
            self._answer(200, "done")

        def do_PUT(self) -> None:
            self.do_POST()

        def do_OPTIONS(self) -> None:
            self._answer(204, "")

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Access-Control-Allow-Origin", self.headers.get("Origin", "*"))
            self.send_header("Access-Control-Allow-Credentials", "true")
            self.send_header("Access-Control-Allow-Methods", "GET, POST, PUT")
            self.send_header("Access-Control-Allow-Headers", "Content-Type")
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def _send_frame(self) -> None:
            """Accept the WebSocket, and send one short message."""
            digest = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}{_WEBSOCKET}".encode()).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
            self.end_headers()
            self.wfile.write(bytes([0x81, len(marker)]) + marker.encode())
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    Handler.protocol_version = "HTTP/1.1"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    app.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
