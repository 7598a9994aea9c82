"""Labels of a Kubernetes node become those of a Ray node: from an API server over TLS to Ray's own parser."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ray._private.label_utils import parse_node_labels_from_yaml_file

from regroup.workers.agent import kubernetes_labels
from regroup.workers.agent.kubernetes_labels import LabelsUnknown, node_labels, ray_labels
from tests.support.inputs.certificates import write_certificate

LABELS = {"topology.kubernetes.io/zone": "z1", "example.com/rack": "r7", "example.com/empty": ""}
NAMES = {"topology.kubernetes.io/zone": "ray.io/availability-zone", "example.com/rack": "regroup.io/rack",
          "example.com/empty": "regroup.io/block", "example.com/none": "ray.io/gpu-domain"}  # fmt: skip
RAY_LABELS = {"ray.io/availability-zone": "z1", "regroup.io/rack": "r7"}


class Api(BaseHTTPRequestHandler):
    """An API server with one node and one authorized token."""

    busy = 0
    """Number of further responses with status 503."""

    def do_GET(self) -> None:
        code, body = self._respond()
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def _respond(self) -> tuple[int, bytes]:
        if Api.busy:
            Api.busy -= 1
            return 503, b""
        if self.headers["Authorization"] != "Bearer a token":
            return 403, b""
        if self.path != "/api/v1/nodes/machine-3":
            return 404, b""
        return 200, json.dumps({"kind": "Node", "metadata": {"name": "machine-3", "labels": LABELS}}).encode()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """Return a folder as Kubernetes mounts it for a service account."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("a token\n")
    return folder


@pytest.fixture
def api(account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the API; return its URL."""
    monkeypatch.setattr(kubernetes_labels, "_PAUSE_S", 0.01)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = write_certificate(account)
    context.load_cert_chain(files.certificate, files.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    Api.busy = 0


def test_selected_labels_of_a_node_are_those_that_ray_reads(api: str, account: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    file.write_text(json.dumps(ray_labels(node_labels(api, "machine-3", account), NAMES)))
    assert parse_node_labels_from_yaml_file(str(file)) == RAY_LABELS


def test_a_request_to_a_busy_server_is_retried(api: str, account: Path) -> None:
    Api.busy = 2
    assert node_labels(api, "machine-3", account) == LABELS
    Api.busy = 2
    with pytest.raises(LabelsUnknown, match=r"no labels of node 'machine-3' .* 503"):
        node_labels(api, "machine-3", account, retry_s=0)


def test_an_account_without_permission_fails_at_once_with_the_remedy(api: str, account: Path) -> None:
    with pytest.raises(LabelsUnknown, match=r"\(404"):
        node_labels(api, "machine-4", account)
    (account / "token").write_text("another")
    with pytest.raises(LabelsUnknown, match=r"'machine-3' .403 .* needs `get` on `nodes`"):
        node_labels(api, "machine-3", account)


def test_a_server_with_another_certificate_is_refused(api: str, account: Path) -> None:
    write_certificate(account)
    with pytest.raises(LabelsUnknown, match="certificate verify failed"):
        node_labels(api, "machine-3", account, retry_s=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"REGROUP_NODE_LABELS": "rack"}, "REGROUP_NODE_LABELS is 'rack': set it to a JSON object"),
        ({"REGROUP_NODE_LABELS": "[1]"}, "REGROUP_NODE_LABELS is '[1]'"),
        ({"REGROUP_NODE_LABELS": '{"a": 1}'}, "set it to a JSON object"),
        ({"NODE_NAME": ""}, "NODE_NAME is not set: run this program in a pod"),
        ({"KUBERNETES_SERVICE_HOST": ""}, "KUBERNETES_SERVICE_HOST is not set"),
    ],
)
def test_an_invalid_configuration_is_named(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    place = {"NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    environment = {"REGROUP_NODE_LABELS": "{}", **place, **changed}
    command = [sys.executable, "-m", kubernetes_labels.__name__, str(tmp_path / "out")]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
