"""Addresses to listen on, `host:port`. It imports nothing heavy: the node sensor's resident part uses it."""

import re


def host_and_port(address: str) -> str:
    """An address to listen on.

    Raises:
        ValueError: it is none.
    """
    host, colon, port = address.rpartition(":")
    usable = colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    if address and not (usable and re.fullmatch(r"[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]", host)):
        raise ValueError("write host:port, as in 127.0.0.1:9464 (or [::1]:9464)")
    return address


def listening(address: str) -> tuple[str, int]:
    """Host and port of an address to listen on; without a host the loopback interface's.

    Raises:
        ValueError: it has no port.
    """
    host, _, port = address.rpartition(":")
    return host or "127.0.0.1", int(port)
