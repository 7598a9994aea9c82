"""Tests that the Kubernetes base renders, is valid against the schemas, and has correct references."""

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import regroup
from regroup.service.domain.topology import DEFAULT_LABELS, MACHINE_LABEL
from regroup.workers.os.process_user import RIGHTS
from regroup.workers.os.user_range import parse_user_range

pytestmark = pytest.mark.kubernetes

Manifest = dict[str, Any]
Schemas = dict[tuple[str, str], dict[str, Any]]
ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = "1.34"


def validate(manifest: Manifest, schemas: Schemas) -> None:
    """Reject what a server would reject, and also unknown fields, which a server would drop silently."""
    schema = schemas.get((manifest["apiVersion"], manifest["kind"]))
    if schema is None:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    else:
        jsonschema.Draft7Validator(closed(schema)).validate(manifest)


def closed(schema: Any) -> Any:
    """Return the schema, in which every object that lists its properties rejects all others."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    names = result.get("properties")
    if isinstance(names, dict) and names and "additionalProperties" not in result:
        result["additionalProperties"] = bool(result.get("x-kubernetes-preserve-unknown-fields"))
    if set(names or ()) == {"apiVersion", "kind", "metadata", "spec", "status"}:
        result["properties"]["metadata"] = {"type": "object"}  # ObjectMeta: defined by the server
    return result


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield (metadata, spec) of every pod template. Templates for Ray have the labels that KubeRay adds."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            yield spec["template"]["metadata"], spec["template"]["spec"]
        if manifest["kind"] == "RayCluster":
            for kind, group in [
                ("head", spec["headGroupSpec"]),
                *(("worker", one) for one in spec["workerGroupSpecs"]),
            ]:
                template = copy.deepcopy(group["template"])
                name = manifest["metadata"]["name"]
                template["metadata"]["labels"] |= {"ray.io/cluster": name, "ray.io/node-type": kind}
                yield template["metadata"], template["spec"]


def containers(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {container["name"]: container for _, spec in pods(manifests) for container in spec["containers"]}


def named(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []))


def references(manifests: list[Manifest], kind: str) -> set[str]:
    """Return the names of the Secrets or ConfigMaps that pods refer to."""
    words = {
        "Secret": r"'(?:secretKeyRef|secretRef|secret)': \{[^}]*'(?:name|secretName)': '([^']+)'",
        "ConfigMap": r"'configMap': \{'name': '([^']+)'",
    }
    return set(re.findall(words[kind], str([spec for _, spec in pods(manifests)])))


# ------------------------------------------------------------------------------------------------ schemas


def test_every_manifest_of_the_base_is_valid(base: list[Manifest], custom_schemas: Schemas) -> None:
    kinds = {manifest["kind"] for manifest in base}
    assert {"Deployment", "StatefulSet", "Service", "NetworkPolicy", "PodDisruptionBudget", "RayCluster"} <= kinds
    assert {"PodMonitor", "PrometheusRule", "ConfigMap", "ServiceAccount", "Namespace"} <= kinds
    for manifest in base:
        validate(manifest, custom_schemas)


@pytest.mark.parametrize("component", ["gpu", "gcs-fault-tolerance", "node-labels", "rank-users", "secrets-key"])
def test_every_component_changes_the_base_and_stays_valid(
    component: str, base: list[Manifest], with_component: Callable[[str], list[Manifest]], custom_schemas: Schemas
) -> None:
    manifests = with_component(component)
    assert manifests != base
    for manifest in manifests:
        validate(manifest, custom_schemas)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("RayCluster", ("spec", "headGroupSpec", "rayStartParameters")),
        ("RayCluster", ("spec", "headGroupSpec", "template", "spec", "containerz")),
        ("PodMonitor", ("spec", "podMetricEndpoints")),
        ("Deployment", ("spec", "template", "spec", "serviceAccount_name")),
        ("NetworkPolicy", ("spec", "ingres")),
    ],
)
def test_the_validation_rejects_a_misspelled_field(
    kind: str, path: tuple[str, ...], base: list[Manifest], custom_schemas: Schemas
) -> None:
    wrong = copy.deepcopy(next(iter(named(base, kind).values())))
    place = wrong
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = {}
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(wrong, custom_schemas)


# ------------------------------------------------------------------------------------------------ references


def test_every_selector_finds_a_pod(base: list[Manifest]) -> None:
    labels = [metadata["labels"] for metadata, _ in pods(base)]
    selectors = {
        f"{manifest['kind']} {manifest['metadata']['name']}": selector
        for manifest in base
        for selector in [manifest.get("spec", {}).get("selector") or manifest.get("spec", {}).get("podSelector")]
        if selector
    }
    assert len(selectors) >= 8
    for name, selector in selectors.items():
        exact = selector if {"matchLabels", "matchExpressions"} & set(selector) else {"matchLabels": selector}
        assert any(selects(exact, one) for one in labels), f"{name} selects no pod"


def test_every_named_port_exists(base: list[Manifest]) -> None:
    exist = {port["name"] for container in containers(base).values() for port in container.get("ports", [])}
    monitored = {
        endpoint["port"]
        for monitor in named(base, "PodMonitor").values()
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    }
    allowed = {
        port["port"]
        for policy in named(base, "NetworkPolicy").values()
        for rule in policy["spec"].get("ingress", [])
        for port in rule.get("ports", [])
        if isinstance(port["port"], str)
    }
    assert monitored <= exist
    assert allowed <= exist
    assert monitored <= allowed, "Prometheus must reach what it scrapes"


def test_config_maps_exist_and_secrets_are_created_as_documented(base: list[Manifest]) -> None:
    assert references(base, "ConfigMap") <= set(named(base, "ConfigMap"))
    secrets = references(base, "Secret") | {named(base, "RayCluster")["regroup"]["spec"]["authOptions"]["secretName"]}
    assert secrets == {
        "regroup-api-token", "regroup-database", "regroup-gateway-tls", "regroup-gateway-token", "regroup-ray-token",
        "regroup-storage",
    }  # fmt: skip
    guide = (ROOT / "docs" / "deploy.md").read_text()
    for secret in secrets:
        assert re.search(rf"create secret (generic|tls) {secret}\b", guide), secret
    assert named(base, "Secret") == {}, "no secret in the repository"


# ------------------------------------------------------------------------------------------------ project rules


def test_no_container_has_more_rights_or_memory_than_it_needs(base: list[Manifest]) -> None:
    for metadata, spec in pods(base):
        assert spec["automountServiceAccountToken"] is False, metadata
        assert spec["securityContext"]["runAsNonRoot"] is True, metadata
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, container["name"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, container["name"]
            assert "memory" in container["resources"]["limits"], container["name"]
            assert not container["image"].endswith(":latest"), container["name"]
            assert ":" in container["image"], container["name"]


def test_only_workers_have_training_resources(base: list[Manifest]) -> None:
    spec = named(base, "RayCluster")["regroup"]["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    sidecar = containers(base)["ray-node"]["args"]
    assert {"--num-cpus=0", "--num-gpus=0", "--labels=regroup.io/role=control"} <= set(sidecar)
    assert all(group["labels"]["regroup.io/role"] == "worker" for group in spec["workerGroupSpecs"])


def test_torch_is_only_where_ranks_run(base: list[Manifest]) -> None:
    images = {name: container["image"].partition(":")[0] for name, container in containers(base).items()}
    assert images["ray-worker"] == "regroup-worker"
    assert {images[name] for name in ("control", "gateway", "ray-node", "ray-head")} == {"regroup-control"}


def test_storage_credentials_are_where_storage_is_used(base: list[Manifest]) -> None:
    """Check that only agents and the server have credentials.

    Agents fetch and upload checkpoints, and the server reads the logs of ended jobs. Supervisors and the Ray head
    do neither.
    """
    having = {
        name
        for name, container in containers(base).items()
        if {"secretRef": {"name": "regroup-storage", "optional": True}} in container.get("envFrom", [])
    }
    assert having == {"control", "ray-worker"}


def test_only_the_server_and_prometheus_have_the_token_of_the_api(base: list[Manifest]) -> None:
    """Check that no container in which Ray runs tasks of jobs mounts it, and that the scraped endpoint sends it."""
    control = containers(base)["control"]
    path = next(variable["value"] for variable in control["env"] if variable["name"] == "REGROUP_TOKEN_FILE")
    mounting = {
        name for name, container in containers(base).items()
        if any(path.startswith(mount["mountPath"] + "/") for mount in container.get("volumeMounts", []))
    }  # fmt: skip
    assert mounting == {"control"}
    assert "regroup-api-token" not in str([container.get("env") for container in containers(base).values()])
    (endpoint,) = [
        endpoint for endpoint in named(base, "PodMonitor")["regroup-control"]["spec"]["podMetricsEndpoints"]
        if endpoint["port"] == "metrics"
    ]  # fmt: skip
    assert endpoint["authorization"]["credentials"] == {"name": "regroup-api-token", "key": path.rpartition("/")[2]}


def test_the_state_directory_is_not_the_mounted_folder_itself(base: list[Manifest]) -> None:
    """Check the path: a mounted folder belongs to root with an open mode, so the server could not make it private."""
    control = containers(base)["control"]
    (folder,) = [variable["value"] for variable in control["env"] if variable["name"] == "REGROUP_STATE_DIR"]
    mounts = [mount["mountPath"] for mount in control["volumeMounts"]]
    assert folder not in mounts and any(folder.startswith(f"{mount}/") for mount in mounts)


def test_ray_requires_a_token_everywhere_and_has_shared_memory(base: list[Manifest]) -> None:
    assert named(base, "RayCluster")["regroup"]["spec"]["authOptions"]["mode"] == "token"
    for name in ("gateway", "ray-node"):
        variables = {variable["name"]: variable for variable in containers(base)[name]["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "regroup-ray-token"
    for metadata, spec in pods(base):
        if metadata["labels"].get("regroup.io/ray") == "true":
            memory = [volume for volume in spec["volumes"] if volume["name"] == "shared-memory"]
            assert memory[0]["emptyDir"]["medium"] == "Memory"


def test_versions_match_the_constraints(base: list[Manifest]) -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    assert f"ray=={named(base, 'RayCluster')['regroup']['spec']['rayVersion']}\n" in constraints
    for name in ("control", "gateway", "ray-worker"):
        assert containers(base)[name]["image"].endswith(f":{regroup.__version__}")


def test_the_overlay_in_the_guide_sets_the_images_of_all_containers(
    tmp_path: Path, render: Callable[[Path], list[Manifest]]
) -> None:
    blocks = re.findall(r"```yaml\n(# kustomization.yaml\n.*?)```", (ROOT / "docs/deploy.md").read_text(), re.DOTALL)
    first, more = (yaml.safe_load(block) for block in blocks)
    there = os.path.relpath(ROOT, tmp_path)
    overlay = yaml.safe_load(yaml.safe_dump({**first, **more}).replace("PATH/TO/regroup", there))
    overlay["components"] += [f"{there}/deploy/kubernetes/components/node-labels"]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    shutil.copy(ROOT / "deploy/kubernetes/ray-images.yaml", tmp_path)
    manifests = render(tmp_path)
    ours = {"control", "gateway", "ray-node", "ray-head", "ray-worker", "node-labels"}
    init = [one for _, spec in pods(manifests) for one in spec.get("initContainers", [])]
    images = {one["name"]: one["image"] for one in (*containers(manifests).values(), *init) if one["name"] in ours}
    assert images.keys() == ours
    assert all(re.fullmatch(r"REGISTRY/regroup-(control|worker):0\.1\.0", image) for image in images.values()), images
    (labels,) = [each["value"] for one in init for each in one["env"] if each["name"] == "REGROUP_NODE_LABELS"]
    assert set(json.loads(labels).values()) == {"regroup.io/block", "regroup.io/rack"}


def test_a_worker_reads_the_labels_of_its_node_and_ranks_have_no_token(
    with_component: Callable[[str], list[Manifest]],
) -> None:
    manifests = with_component("node-labels")
    (role,) = named(manifests, "ClusterRole").values()
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    (binding,) = named(manifests, "ClusterRoleBinding").values()
    assert [subject["name"] for subject in binding["subjects"]] == ["regroup-node-labels"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (group,) = named(manifests, "RayCluster")["regroup"]["spec"]["workerGroupSpecs"]
    spec = group["template"]["spec"]
    assert spec["serviceAccountName"] == "regroup-node-labels" and spec["automountServiceAccountToken"] is False
    (init,) = spec["initContainers"]
    (ranks,) = spec["containers"]
    holding = [volume["name"] for volume in spec["volumes"] if "projected" in volume]
    assert [mount["name"] for mount in init["volumeMounts"] if mount["name"] in holding] == holding == ["api-access"]
    assert not any(mount["name"] in holding for mount in ranks["volumeMounts"])
    assert init["image"] == ranks["image"], "an overlay names both"
    assert init["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    (file,) = {group["rayStartParams"]["labels-file"], init["command"][-1]}
    assert {mount["mountPath"] for mount in ranks["volumeMounts"] if mount["name"] == "node-labels"} == {
        str(Path(file).parent)
    }
    (given,) = [each["value"] for each in init["env"] if each["name"] == "REGROUP_NODE_LABELS"]
    assert set(json.loads(given).values()) == {*DEFAULT_LABELS.values(), MACHINE_LABEL}


def test_agents_get_the_rights_to_switch_users_only_with_the_component_for_it(
    with_component: Callable[[str], list[Manifest]],
) -> None:
    manifests = with_component("rank-users")
    worker, control = containers(manifests)["ray-worker"], containers(manifests)["control"]
    rights = worker["securityContext"]["capabilities"]
    assert rights == {"drop": ["ALL"], "add": sorted(RIGHTS.values())}
    assert worker["securityContext"]["allowPrivilegeEscalation"] is False
    (users,) = [each["value"] for each in control["env"] if each["name"] == "REGROUP_RANK_USERS"]
    assert parse_user_range(users).size > 60_000
    others = [each for name, each in containers(manifests).items() if name != "ray-worker"]
    assert all(each["securityContext"]["capabilities"] == {"drop": ["ALL"]} for each in others)


def test_no_ray_process_shares_a_pod_with_the_control_plane(base: list[Manifest]) -> None:
    (spec,) = [spec for _, spec in pods(base) if any(each["name"] == "control" for each in spec["containers"])]
    assert [each["name"] for each in spec["containers"]] == ["control", "metrics-proxy"]
    assert "ray" not in str(spec).replace("regroup-gateway", "").lower()
    (metadata,) = [metadata for metadata, found in pods(base) if found is spec]
    assert "regroup.io/ray" not in metadata["labels"], "Ray nodes may not connect to it"


def test_only_the_control_plane_reaches_the_gateway_and_only_the_gateway_has_its_key(base: list[Manifest]) -> None:
    control, gateway = containers(base)["control"], containers(base)["gateway"]
    flags = dict(flag.removeprefix("--").split("=") for flag in gateway["args"])
    mounted = {mount["mountPath"]: mount["name"] for mount in gateway["volumeMounts"]}
    assert {str(Path(flags[name]).parent) for name in ("token-file", "tls-cert", "tls-key")} <= mounted.keys()
    (url,) = [value for flag, value in pairwise(control["args"]) if flag == "--gateway-url"]
    (service,) = [each for each in named(base, "Service").values() if each["metadata"]["name"] in url]
    assert url == f"https://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    volumes = {volume["name"]: volume for _, spec in pods(base) for volume in spec.get("volumes", [])}
    assert [item["key"] for item in volumes["gateway-certificate"]["secret"]["items"]] == ["tls.crt"]
    having = {
        name for name, each in containers(base).items()
        if any(mount["name"] in ("token", "tls") for mount in each.get("volumeMounts", []))
    }  # fmt: skip
    assert having == {"gateway"}
    callers = [
        rule["from"] for policy in named(base, "NetworkPolicy").values() for rule in policy["spec"].get("ingress", [])
        if {"port": "gateway"} in rule.get("ports", [])
    ]  # fmt: skip
    assert callers == [[{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "regroup-control"}}}]]


def test_the_api_is_not_exposed_before_it_has_access_control(base: list[Manifest]) -> None:
    control = containers(base)["control"]
    assert "ports" not in control
    assert not any("host" in argument for argument in control["args"])
    ports = [port["name"] for port in named(base, "Service")["regroup-control"]["spec"]["ports"]]
    assert ports == ["metrics"]
