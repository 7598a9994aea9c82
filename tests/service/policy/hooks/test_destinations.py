"""Destinations: addresses that notifications may reach, URLs and recipients."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regroup.service.domain.hooks import HookKind
from regroup.service.policy.hooks.destinations import DestinationRules, find_issue, hide_secrets

PUBLIC = DestinationRules()
WITH_10 = DestinationRules((ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
MAIL = DestinationRules(has_mail=True, recipient_domains=("example.com",))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_allowed_with_tls_only(address: str) -> None:
    assert PUBLIC.refuse_address(ip_address(address), is_encrypted=True) == ""
    assert "https" in PUBLIC.refuse_address(ip_address(address), is_encrypted=False)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "239.1.1.1", "255.255.255.255", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fd00::1",
        "ff02::1", "ff0e::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "fe80::1%eth0",
        "::7f00:1", "fec0::1", "64:ff9b:1::1", "5f00::1", "3fff::1", "2001:db8::1", "192.0.0.8", "192.88.99.1",
        "::ffff:0:7f00:1", "4000::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    refusal = PUBLIC.refuse_address(ip_address(address), is_encrypted=True)
    assert "is not a public address" in refusal and "REGROUP_HOOK_PRIVATE_NETWORKS" in refusal


@given(st.ip_addresses(v=4).filter(lambda each: not each.is_global))
def test_no_form_of_a_private_address_is_allowed(address) -> None:
    low = int(address)
    forms = (address, ip_address(f"::ffff:{address}"), ip_address(int(ip_address("64:ff9b::")) | low),
             ip_address(int(ip_address("2002::")) | low << 80))  # fmt: skip
    assert all(PUBLIC.refuse_address(each, is_encrypted=True) for each in forms)


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd12::1", True), ("127.0.0.1", False), ("192.168.0.1", False),
     ("169.254.169.254", False)],
)  # fmt: skip
def test_the_operator_allows_single_networks_also_without_tls(address: str, is_allowed: bool) -> None:
    for is_encrypted in (True, False):
        assert (WITH_10.refuse_address(ip_address(address), is_encrypted=is_encrypted) == "") is is_allowed


def test_networks_do_not_open_the_public_internet_without_tls() -> None:
    assert WITH_10.refuse_address(ip_address("8.8.8.8"), is_encrypted=False)


@pytest.mark.parametrize(
    "url", ["https://example.com", "https://example.com:8443/a?b=c", "https://8.8.8.8/x", "https://[2606:4700::1]/"]
)
def test_urls_of_public_receivers_are_accepted(url: str) -> None:
    assert find_issue(HookKind.CLOUDEVENTS, url, (), PUBLIC) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com", "ftp://example.com", "https://", "https:///path", "//example.com", "example.com",
        "https://user:pw@example.com", "https://user@example.com", "https://example.com/#part", "https://127.0.0.1/",
        "https://[::1]/", "https://169.254.169.254/latest", "https://exa mple.com", "https://example.com/\r\nX: 1",
        "https://example.com/é", "https://example.com:0/", "https://example.com:99999/", "https://[::1", "file:///etc/x",
        "https://example.com\\@10.0.0.1/", f"https://example.com/{'x' * 2000}", "",
    ],
)  # fmt: skip
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    issue = find_issue(HookKind.CLOUDEVENTS, url, (), PUBLIC)
    assert issue is not None and issue.path == "url" and issue.value is None


def test_plain_http_needs_a_private_network() -> None:
    assert find_issue(HookKind.SLACK, "http://receiver.corp/in", (), WITH_10) is None
    assert find_issue(HookKind.SLACK, "http://10.0.0.7/in", (), WITH_10) is None
    assert find_issue(HookKind.SLACK, "http://127.0.0.1/in", (), WITH_10) is not None
    assert find_issue(HookKind.SLACK, "http://8.8.8.8/in", (), WITH_10) is not None


@pytest.mark.parametrize(
    ("kind", "url", "recipients", "rules", "path"),
    [
        (HookKind.EMAIL, None, ("ana@example.com",), PUBLIC, "kind"),
        (HookKind.EMAIL, "https://example.com", ("ana@example.com",), MAIL, "url"),
        (HookKind.EMAIL, None, (), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("ana@example.org",), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("ana@example.com\r\nBcc: x@example.com",), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("<ana@example.com>",), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("ana@example.com, b@example.com",), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("ana",), MAIL, "recipients"),
        (HookKind.EMAIL, None, ("ana@example.com",) * 21, MAIL, "recipients"),
        (HookKind.TEAMS, None, (), PUBLIC, "url"),
        (HookKind.TEAMS, "https://example.com", ("ana@example.com",), PUBLIC, "recipients"),
    ],
)
def test_a_kind_and_its_destination_must_match(
    kind: HookKind, url: str | None, recipients: tuple[str, ...], rules: DestinationRules, path: str
) -> None:
    issue = find_issue(kind, url, recipients, rules)
    assert issue is not None and issue.path == path


def test_recipients_of_an_allowed_domain_are_accepted() -> None:
    assert find_issue(HookKind.EMAIL, None, ("Ana.B+x@EXAMPLE.com",), MAIL) is None


def test_secrets_of_a_url_are_hidden() -> None:
    slack = "https://hooks.slack.com/services/T0/B0/secret"
    assert hide_secrets(HookKind.SLACK, slack) == "https://hooks.slack.com/…"
    assert hide_secrets(HookKind.CLOUDEVENTS, "https://a.example/in?token=secret") == "https://a.example/in?…"
    assert hide_secrets(HookKind.CLOUDEVENTS, "https://a.example/in") == "https://a.example/in"
