"""Loopback: hosts that only this machine reaches."""

import ipaddress


def is_loopback_host(host: str) -> bool:
    """Return True for `localhost` and loopback addresses."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
