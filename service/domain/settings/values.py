"""Checks of values that settings have: host names, networks, ranges of ports, and the URL of a gateway."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from regroup.service.domain.loopback import is_loopback_host

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_MAX_PORT = 65535


def invalid_setting(field: str, value: object, problem: str) -> PydanticCustomError:
    """Return the error of a setting that contradicts others."""
    return PydanticCustomError("setting", "{problem}", {"problem": problem, "field": field, "value": value})


def check_host_names(setting: str, names: Sequence[str]) -> None:
    """Check that these are host names without scheme and port; raise ValueError otherwise."""
    if wrong := next((name for name in names if not _NAME.fullmatch(name)), None):
        raise ValueError(f"{setting}: {wrong!r} is not a host name; give names without scheme and port")


def check_networks(setting: str, networks: Sequence[str]) -> None:
    """Check that these are addresses or networks; raise ValueError otherwise."""
    for each in networks:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise ValueError(f"{setting}: {error}; give addresses or networks such as 10.0.0.0/8") from error


def check_port_range(setting: str, value: str) -> None:
    """Check that a text of the form `N-M` is a range of ports; raise ValueError otherwise."""
    first, last = (int(part) for part in value.split("-"))
    if not 1 <= first <= last <= _MAX_PORT:
        raise ValueError(
            f"{setting} {value!r} is not a range of ports: give the first and the last port, from 1 to {_MAX_PORT}, "
            "for example 20000-29999"
        )


def find_issuer_problem(issuer: str, audience: str) -> tuple[str, str] | None:
    """Return the setting of the issuer of tokens that cannot be used, and why; None if both can."""
    if bool(issuer) != bool(audience):
        name = "oidc_audience" if issuer else "oidc_issuer"
        return name, "oidc_issuer and oidc_audience belong together: give both, or none"
    parts = urlsplit(issuer)
    if issuer and parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        return "oidc_issuer", "must begin with https://: its keys decide who enters"
    return None


CLUSTER_SETTINGS = ("ray_address", "gateway_url", "clusters_file", "gateway_token_file", "gateway_ca_file")
"""Settings of the cluster, or the clusters, that a server serves."""


def find_cluster_problem(values: Mapping[str, object]) -> tuple[str, str] | None:
    """Return a setting of `CLUSTER_SETTINGS` that cannot be used, and why; None if all can."""
    first, *more = [name for name in CLUSTER_SETTINGS[:3] if values[name]] or [""]
    if more:
        return first, f"{more[0]} names a cluster, too: give one of them"
    files = [name for name in CLUSTER_SETTINGS[3:] if values[name] is not None]
    if first != "gateway_url":
        return (files[0], "has no effect without gateway_url") if files else None
    if values["gateway_token_file"] is None:
        return "gateway_token_file", "gateway_url needs gateway_token_file, the token of the gateway"
    problem = find_gateway_problem(str(values["gateway_url"]))
    return ("gateway_url", problem) if problem else None


def find_gateway_problem(url: str) -> str:
    """Return why a URL cannot be that of a gateway; empty if it can."""
    try:
        parts = urlsplit(url)
        has_address = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # brackets or a port that are not of an address
        return "must be https://HOST:PORT"
    if parts.scheme not in ("http", "https") or not has_address or parts.path.strip("/") or parts.query:
        return "must be https://HOST:PORT"
    if parts.scheme == "http" and not is_loopback_host(parts.hostname or ""):
        return "must begin with https://: calls carry secrets of jobs"
    return ""
