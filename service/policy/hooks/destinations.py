"""The decision where notifications may go. Pure: names are resolved elsewhere, and each address is decided here.

A project's admin chooses the receiver, and the server sends from inside the network. Without these rules, a hook could
reach services that trust the network, such as the metadata of a cloud (SSRF).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from regroup.service.domain.errors import FieldIssue
from regroup.service.domain.hooks import HookKind

MAX_URL_CHARACTERS = 2000
MAX_RECIPIENTS = 20
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_NAT64 = ip_network("64:ff9b::/96")
_UNICAST = ip_network("2000::/3")
"""The global unicast addresses of IPv6 (RFC 4291)."""
_SPECIAL = tuple(ip_network(each) for each in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"))
"""Networks of the IANA registries of special addresses that Python 3.11 counts as global."""
_LOW_32_BITS = 2**32 - 1
Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class DestinationRules:
    """The rules of the operator."""

    private_networks: tuple[Network, ...] = ()
    """Networks that are not public and to which notifications may go, also without TLS."""
    has_mail: bool = False
    """True if the server can send e-mail."""
    recipient_domains: tuple[str, ...] = ()
    """Domains of recipients; empty for all."""

    def refuse_address(self, address: Address, *, is_encrypted: bool) -> str:
        """Return why nothing may be sent to this address; empty if it is allowed."""
        reached = _reached(address)
        if any(each in network for each in reached for network in self.private_networks):
            return ""
        if not all(map(_is_public, reached)):
            return f"{address} is not a public address; an operator can allow it with REGROUP_HOOK_PRIVATE_NETWORKS"
        return "" if is_encrypted else "a public receiver needs https://"


def find_issue(
    kind: HookKind, url: str | None, recipients: Sequence[str], rules: DestinationRules
) -> FieldIssue | None:
    """Return the problem of a destination; None if it is allowed. Names of hosts are checked at each delivery."""
    if kind is HookKind.EMAIL:
        if url is not None:
            return FieldIssue("url", "a hook of kind email has recipients and no URL")
        return _find_recipient_issue(recipients, rules)
    if recipients:
        return FieldIssue("recipients", f"only a hook of kind email has recipients, not one of kind {kind}")
    if url is None:
        return FieldIssue("url", f"a hook of kind {kind} needs the URL of its receiver")
    problem = _find_url_problem(url, rules)
    return FieldIssue("url", problem) if problem else None  # without the value, which may contain a token


def split_url(url: str) -> SplitResult:
    """Return the parts of an accepted URL."""
    return urlsplit(url)


def hide_secrets(kind: HookKind, url: str) -> str:
    """Return a URL without the parts that may be secrets: the query, and for a chat the path."""
    parts = urlsplit(url)
    if kind is HookKind.CLOUDEVENTS:
        return f"{parts.scheme}://{parts.netloc}{parts.path}{'?…' if parts.query else ''}"
    return f"{parts.scheme}://{parts.netloc}/…"


def _find_url_problem(url: str, rules: DestinationRules) -> str:
    if len(url) > MAX_URL_CHARACTERS or not _VISIBLE.fullmatch(url):
        return f"must be a URL of at most {MAX_URL_CHARACTERS} visible ASCII characters"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in ("https", "http") or not host or port == 0 or "\\" in parts.netloc:
        return "must begin with https:// and the name of a host"
    if "@" in parts.netloc:
        return "must not contain a user or a password; the signature proves the sender"
    if parts.fragment:
        return "must not contain a fragment"
    if parts.scheme == "http" and not rules.private_networks:
        return "must begin with https://"
    try:
        address = ip_address(host)
    except ValueError:
        return ""  # a name
    return rules.refuse_address(address, is_encrypted=parts.scheme == "https")


def _find_recipient_issue(recipients: Sequence[str], rules: DestinationRules) -> FieldIssue | None:
    if not rules.has_mail:
        return FieldIssue("kind", "this server sends no e-mail; an operator can set REGROUP_SMTP_HOST", HookKind.EMAIL)
    if not 1 <= len(recipients) <= MAX_RECIPIENTS:
        return FieldIssue("recipients", f"must name 1 to {MAX_RECIPIENTS} addresses")
    for each in recipients:
        if not _ADDRESS.fullmatch(each):
            return FieldIssue("recipients", "is not an address such as ana@example.com", each)
        domain = each.rpartition("@")[2].lower()
        if rules.recipient_domains and domain not in rules.recipient_domains:
            allowed = ", ".join(rules.recipient_domains)
            return FieldIssue("recipients", f"this server sends e-mail only to {allowed}", each)
    return None


def _reached(address: Address) -> list[Address]:
    """Return the address, or also the IPv4 address that a translator connects to instead."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [IPv4Address(int(address) & _LOW_32_BITS)]
    return [address] if address.sixtofour is None else [address, address.sixtofour]


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    is_special = any(address in network for network in _SPECIAL if network.version == address.version)
    return address.is_global and not address.is_multicast and not is_special
