"""Examples in the OpenAPI document: a value for each part of a path, for each required parameter, and a body.

The page at `/docs` fills its forms with them. A test sends each of them to a server.
"""

from collections.abc import Mapping
from typing import Any

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_SPEC: Mapping[str, Any] = {
    "name": "gpt",
    "workload": {"kind": "script", "entrypoint": "/home/ana/gpt/train.py", "args": ["--epochs", "3"]},
    "layout": {"dp": {"min": 4, "target": 8, "max": 16}},
    "resources": {"device": "cuda", "accelerator": "H100"},
}
PATHS: Mapping[str, str | int] = {
    "delivery": 7,
    "hook": "h_01k9",
    "job": "gpt",
    "name": "vision",
    "node": "gpu-17",
    "number": 1,
    "session": "ses_k3v9q2",
    "secret": "hf-token",
    "step": 500,
    "subject": "ana@example.com",
    "token": "k3v9q2",
    "upload": f"{_DIGEST}-10240",
}
"""Name of a part of a path → its example."""
PATHS_OF_TAGS: Mapping[tuple[str, str], str] = {("nodes", "name"): "gpu-17"}
"""Examples of parts whose meaning depends on the tag of the operation."""
QUERIES: Mapping[tuple[str, str], Any] = {
    ("curves_of_jobs", "job"): ["gpt"],
    ("jobs_diff", "with"): "gpt",
    ("jobs_file", "name"): "incident.json",
    ("streams_search", "text"): "out of memory",
}
"""Id of an operation and name of a parameter that it requires → its example."""
BODIES: Mapping[str, Any] = {
    "jobs_create": _SPEC,
    "jobs_set_budget": {"device_hours": 500},
    "jobs_resize": {"dp": 16, "reason": "more nodes arrived"},
    "jobs_verify_checkpoint": {"contents": False},
    "jobs_suspend": {"reason": "another job needs the nodes"},
    "exec_run": {"command": ["nvidia-smi"], "rank": 0},
    "uploads_create": {"sha256": _DIGEST, "size_bytes": 10_240},
    "nodes_cordon": {"reason": "the fan fails"},
    "nodes_uncordon": {"reason": "the fan was replaced"},
    "drain_start": {"deadline_s": "15m", "reason": "firmware update"},
    "projects_put": {"guaranteed": 16, "limit": 64, "defaults": {"priority": "low"}},
    "identities_create": {"subject": "vision-ci", "kind": "service_account", "project": "vision", "role": "editor"},
    "identities_change": {"disabled": True},
    "identities_put_member": {"role": "editor", "permissions": ["exec"]},
    "tokens_create": {"name": "laptop", "subject": "ana@example.com", "expires_in_s": "30d"},
    "hooks_create": {
        "name": "alerts",
        "url": "https://receiver.example.com/regroup",
        "events": ["incident", "state:FAILED"],
    },
    "hooks_change": {"is_enabled": False},
    "hooks_rotate": {},
    "secrets_put": {"value": "hf_4hJQyA8sE2"},
    "queue_simulate": {"add_nodes": {"count": 8}, "quotas": {"vision": {"limit": 64}}},
    "plans_create": {"model": "llama3-8b", "device": "H100", "gpus": 64, "global_batch": 512, "sequence": 8192},
    "probes_create": {},
    "reports_record_verdict": {
        "scenario": "rank-killed",
        "number": "1",
        "what": "SIGKILL of a rank",
        "seed": 0,
        "passed": True,
        "invariants": {"I1": True},
        "detect_s": 0.2,
        "recover_s": 3.1,
        "steps_lost": 1,
    },
    "spec_validate": _SPEC,
    "spec_sizes": _SPEC,
}
"""Id of an operation → an example of its body."""


def add_examples(document: Mapping[str, Any]) -> None:
    """Add the examples to the operations of an OpenAPI document."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    tagged = (operation["tags"][0], parameter["name"])
                    parameter["example"] = PATHS_OF_TAGS.get(tagged, PATHS.get(parameter["name"]))
                elif parameter["in"] == "query" and parameter.get("required"):
                    parameter["example"] = QUERIES.get((operation["operationId"], parameter["name"]))
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content and operation["operationId"] in BODIES:
                content["application/json"]["example"] = BODIES[operation["operationId"]]
