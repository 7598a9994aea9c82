"""The command that connects control planes on other machines with a Ray cluster."""

from pathlib import Path
from typing import Annotated

import typer

RayAddress = Annotated[
    str, typer.Option("--ray-address", metavar="HOST:PORT", help="Ray cluster to join. This machine needs a Ray node.")
]
TokenFile = Annotated[
    Path, typer.Option("--token-file", metavar="FILE", help="File with the token that control planes must send.")
]
Host = Annotated[str, typer.Option("--host", help="Address to bind; all but loopback need TLS.")]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to bind; 0 selects a free one.")]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain of the gateway, PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of --tls-cert, PEM.")]


def gateway(
    ray_address: RayAddress,
    token_file: TokenFile,
    host: Host = "127.0.0.1",
    port: Port = 8600,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Make the calls of control planes on other machines in a Ray cluster, until interrupted.

    Control planes connect with `regroup serve --gateway-url URL`, and need no Ray node: see docs/operations/gateway.md.
    """
    from regroup.service.gateway.process import GatewayOptions, run_gateway

    run_gateway(GatewayOptions(ray_address, token_file, host, port, tls_cert, tls_key))
