"""The address of a client: the peer of the connection, or the address that a trusted proxy reports.

Each proxy appends the address of its own peer to X-Forwarded-For. So the list is read from the right, as long as the
addresses are trusted proxies (`Settings.proxies`); anything further left could be forged by the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, final

from starlette.types import Scope

from deniable.errors import InvalidParameter

Network = IPv4Network | IPv6Network

NOWHERE: Final = "somewhere"
"""The name of a client without an address, as in a test."""

_PORT: Final = re.compile(r"(?:\[([^\]]+)\]|([0-9.]+))(?::[0-9]{1,5})?")
"""An address with a port, or in brackets. IPv6 needs brackets: its colons do not separate a port."""

_HOUSE: Final = 64
"""Bits of the IPv6 network that one household or machine usually gets; it may choose the other bits freely."""


@final
class Addresses:
    """Finds client addresses, with these trusted proxies (addresses or networks)."""

    def __init__(self, proxies: Iterable[str]) -> None:
        self._proxies = tuple(network_of(each) for each in proxies)

    def is_proxy(self, host: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        found = _read(host)
        return found is not None and any(found in each for each in self._proxies)

    def of(self, scope: Scope) -> str:
        """The name of the client of a request (see `name_of`)."""
        client = scope.get("client")
        host = client[0] if client else NOWHERE
        if self._proxies and self.is_proxy(host):
            forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
            for each in reversed(forwarded.decode("latin-1").split(",")):
                found = _read(_without_port(each.strip()))
                if found is None:
                    break  # no trusted proxy wrote this entry, so the rest may be forged as well
                host = str(found)
                if not self.is_proxy(host):
                    break
        return name_of(host)


def name_of(host: str) -> str:
    """The name under which an address is counted: for IPv6 its /64 network, which one client controls.

    >>> name_of("2001:db8::1") == name_of("2001:db8::2"), name_of("192.0.2.1")
    (True, '192.0.2.1')
    """
    found = _read(host)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, _HOUSE), strict=False))
    return host if found is None else str(found)


def _without_port(text: str) -> str:
    """The address of an entry without its port; some proxies add one, with IPv6 addresses in brackets.

    >>> _without_port("203.0.113.9:4431"), _without_port("[2001:db8::1]:443"), _without_port("2001:db8::1")
    ('203.0.113.9', '2001:db8::1', '2001:db8::1')
    """
    found = _PORT.fullmatch(text)
    return text if found is None else found[1] or found[2]


def _read(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def network_of(text: str) -> Network:
    """An address or a network of the settings. Raises InvalidParameter if the text is neither."""
    try:
        return ip_network(text)
    except (ValueError, TypeError):
        rule = "must be a list of addresses or networks"
        raise InvalidParameter("proxies", text, rule, 'write ["10.0.0.7", "192.168.0.0/24"]') from None
