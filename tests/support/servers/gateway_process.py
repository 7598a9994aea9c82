"""`regroup gateway` as a process, with TLS, next to a Ray cluster of its own."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

from regroup.service.local import ray_cluster
from regroup.service.local.private_files import create_private
from regroup.service.settings import Settings
from tests.support.inputs.certificates import write_certificate
from tests.support.servers.ports import free_port
from tests.support.servers.regroup_server import START_S, eventually


class Gateway:
    """`regroup gateway` as a process, with TLS, and a Ray cluster of two nodes."""

    def __init__(self, folder: Path) -> None:
        self.token, self.files = folder / "gateway.token", write_certificate(folder)
        create_private(self.token, secrets.token_urlsafe(32))
        self._settings = Settings(state_dir=folder / "ray", local_nodes=2, slots_per_node=2, ray_dashboard=False)
        self._ray = ray_cluster.start(self._settings)
        self._port, self._log = free_port(), folder / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://localhost:{self._port}"

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        flags = {
            "--ray-address": self._ray.address, "--port": self._port, "--token-file": self.token,
            "--tls-cert": self.files.certificate, "--tls-key": self.files.key,
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "regroup.api.cli",
            "gateway",
            *(str(x) for pair in flags.items() for x in pair),
        ]
        environment = {**os.environ, **ray_cluster.ray_environment(self._settings.ray_token_path)}
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        eventually(lambda: b"regroup gateway serves at https://" in self._log.read_bytes()[begin:], START_S)

    def kill(self) -> None:
        """Send SIGKILL to the process. The cluster is not touched."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """Send SIGTERM to the process; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def stop(self) -> None:
        """Stop the process and the cluster."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        ray_cluster.stop(self._settings.state_dir)
