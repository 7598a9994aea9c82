"""Labels of a pod's Kubernetes node, as labels of its Ray node: a program for an init container.

A pod cannot read the labels of its node, which name its rack. The API server returns them to an account that may `get`
nodes. This program writes the selected labels for `ray start --labels-file`.

    python -m regroup.workers.agent.kubernetes_labels FILE

`NODE_NAME` is the name of the node. `REGROUP_NODE_LABELS` is a JSON object: label of the Kubernetes node → label of the
Ray node.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder with the token of a pod's service account, and with the certificate of the API server."""
_TIMEOUT_S = 10.0
_RETRY_S = 60.0
"""A new pod may have no network yet. After this time Kubernetes restarts the container, with growing pauses."""
_PAUSE_S = 1.0


class LabelsUnknown(Exception):
    """Labels that could not be read, or an invalid configuration."""


def main() -> None:
    """Write the file, or print the error and exit with code 1."""
    try:
        names = _selected_names(os.environ.get("REGROUP_NODE_LABELS", ""))
        api = f"https://{_variable('KUBERNETES_SERVICE_HOST')}:{_variable('KUBERNETES_SERVICE_PORT')}"
        labels = ray_labels(node_labels(api, _variable("NODE_NAME"), ACCOUNT), names)
    except LabelsUnknown as error:
        sys.exit(str(error))
    Path(sys.argv[1]).write_text(json.dumps(labels))
    print(f"labels of the Ray node: {labels or 'the Kubernetes node has none of the selected labels'}")


def ray_labels(node: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the selected labels of a node under their names in Ray. A node may lack some."""
    return {ray_name: node[name] for name, ray_name in names.items() if node.get(name)}


def node_labels(api: str, node: str, account: Path, retry_s: float = _RETRY_S) -> Mapping[str, str]:
    """Return all labels of a node. Retry until the API server answers.

    Args:
        api: URL of the API server.
        node: Name of the node.
        account: Folder with `token` and `ca.crt`.
        retry_s: Seconds after which the call stops retrying.

    Raises:
        LabelsUnknown: The API server refuses, or does not answer in time.
    """
    end = time.monotonic() + retry_s
    while True:
        try:
            return _request(api, node, account)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise LabelsUnknown(
                    f"the API server at {api} refuses the labels of node {node!r} ({error.code} {error.reason}): "
                    "the service account needs `get` on `nodes`, see components/node-labels"
                ) from error
            problem = f"{error.code} {error.reason}"
        except (OSError, ValueError) as error:
            problem = str(error)
        if time.monotonic() > end:
            raise LabelsUnknown(f"no labels of node {node!r} from the API server at {api}: {problem}")
        time.sleep(_PAUSE_S)


def _request(api: str, node: str, account: Path) -> Mapping[str, str]:
    token = (account / "token").read_text().strip()
    request = urllib.request.Request(f"{api}/api/v1/nodes/{quote(node)}", headers={"Authorization": f"Bearer {token}"})
    context = ssl.create_default_context(cafile=account / "ca.crt")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(request, timeout=_TIMEOUT_S) as response:
        return json.load(response)["metadata"].get("labels") or {}


def _selected_names(text: str) -> Mapping[str, str]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        example = '{"example.com/rack": "regroup.io/rack"}'
        raise LabelsUnknown(
            f"REGROUP_NODE_LABELS is {text!r}: set it to a JSON object of node labels and Ray labels, as {example}"
        )
    return names


def _variable(name: str) -> str:
    if not (value := os.environ.get(name, "")):
        raise LabelsUnknown(f"{name} is not set: run this program in a pod, as in components/node-labels")
    return value


if __name__ == "__main__":
    main()
