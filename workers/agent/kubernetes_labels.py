"""Labels of the Kubernetes node that a pod is on, as labels of its Ray node: a program for an init container.

A pod cannot see labels of its node, which say in which rack it is. The API server tells them to who may `get` nodes;
what is wanted of them is written for `ray start --labels-file`.

    python -m regroup.workers.agent.kubernetes_labels FILE

`NODE_NAME` names the node, `REGROUP_NODE_LABELS` is a JSON object: label of the node → label of the Ray node.
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
"""Where Kubernetes puts the token of a pod's service account, and the certificate of the API server."""
_CALL_S = 10.0
_PATIENCE_S = 60.0
"""A new pod may have no network yet. After that the container is restarted, with pauses that grow."""
_PAUSE_S = 1.0


class LabelsUnknown(Exception):
    """The node's labels could not be had."""


def main() -> None:
    """Write the file, or say what is wrong and end with code 1."""
    try:
        wanted = _wanted(os.environ.get("REGROUP_NODE_LABELS", ""))
        api = f"https://{_variable('KUBERNETES_SERVICE_HOST')}:{_variable('KUBERNETES_SERVICE_PORT')}"
        labels = ray_labels(node_labels(api, _variable("NODE_NAME"), ACCOUNT), wanted)
    except LabelsUnknown as error:
        sys.exit(str(error))
    Path(sys.argv[1]).write_text(json.dumps(labels))
    print(f"labels of the Ray node: {labels or 'none of those that are wanted'}")


def ray_labels(node: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Of a node's labels those that are wanted, under the names that they have in Ray; a node may lack some."""
    return {ours: node[theirs] for theirs, ours in wanted.items() if node.get(theirs)}


def node_labels(api: str, node: str, account: Path, patience_s: float = _PATIENCE_S) -> Mapping[str, str]:
    """All labels of a node, asked of the API server again until it answers.

    Args:
        account: folder with `token` and `ca.crt`.

    Raises:
        LabelsUnknown: it refuses, or has not answered in time.
    """
    end = time.monotonic() + patience_s
    while True:
        try:
            return _asked(api, node, account)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise LabelsUnknown(
                    f"the API server at {api} does not tell the labels of node {node!r} ({error.code} {error.reason}): "
                    "the service account needs `get` on `nodes`, see components/node-labels"
                ) from error
            problem = f"{error.code} {error.reason}"
        except (OSError, ValueError) as error:
            problem = str(error)
        if time.monotonic() > end:
            raise LabelsUnknown(f"no labels of node {node!r} from the API server at {api}: {problem}")
        time.sleep(_PAUSE_S)


def _asked(api: str, node: str, account: Path) -> Mapping[str, str]:
    token = (account / "token").read_text().strip()
    request = urllib.request.Request(f"{api}/api/v1/nodes/{quote(node)}", headers={"Authorization": f"Bearer {token}"})
    trusted = ssl.create_default_context(cafile=account / "ca.crt")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))
    with opener.open(request, timeout=_CALL_S) as answer:
        return json.load(answer)["metadata"].get("labels") or {}


def _wanted(text: str) -> Mapping[str, str]:
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = None
    if not isinstance(wanted, dict) or not all(isinstance(name, str) for name in wanted.values()):
        example = '{"example.com/rack": "regroup.io/rack"}'
        raise LabelsUnknown(
            f"REGROUP_NODE_LABELS is {text!r}: say which labels of nodes are which of Ray, as {example}"
        )
    return wanted


def _variable(name: str) -> str:
    if not (value := os.environ.get(name, "")):
        raise LabelsUnknown(f"{name} is not set: this runs in a pod, as components/node-labels has it")
    return value


if __name__ == "__main__":
    main()
