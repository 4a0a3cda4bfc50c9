"""Addresses of this very machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this machine, and nobody else can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
