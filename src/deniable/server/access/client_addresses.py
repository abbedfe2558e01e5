"""Where a request comes from: the other end of its connection, or what a proxy that the operator named says.

X-Forwarded-For is a list to which each proxy adds, at its right end, whom it was called by. So it is read from the
right, for as long as named proxies speak; all that stands further left anybody could have written.
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
"""A client without an address, as in a test."""

_PORT: Final = re.compile(r"(?:\[([^\]]+)\]|([0-9.]+))(?::[0-9]{1,5})?")
"""An address with a port, or in brackets. Without brackets no colon of IPv6 begins a port."""

_HOUSE: Final = 64
"""Bits of an IPv6 address that one household or machine has; the others are its own to choose."""


@final
class Addresses:
    """Tells addresses, by the proxies that are believed."""

    def __init__(self, proxies: Iterable[str]) -> None:
        self._proxies = tuple(network_of(each) for each in proxies)

    def is_proxy(self, host: str) -> bool:
        """Whether a proxy of ours has this address."""
        found = _read(host)
        return found is not None and any(found in each for each in self._proxies)

    def of(self, scope: Scope) -> str:
        """Whom a request comes from; one name for all addresses that one client can choose from."""
        client = scope.get("client")
        host = client[0] if client else NOWHERE
        if self._proxies and self.is_proxy(host):
            said = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
            for each in reversed(said.decode("latin-1").split(",")):
                found = _read(_without_port(each.strip()))
                if found is None:
                    break  # nobody of ours writes that: whoever wrote it may have written the rest
                host = str(found)
                if not self.is_proxy(host):
                    break
        return name_of(host)


def name_of(host: str) -> str:
    """The name that counts are kept under.

    >>> name_of("2001:db8::1") == name_of("2001:db8::2"), name_of("192.0.2.1")
    (True, '192.0.2.1')
    """
    found = _read(host)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, _HOUSE), strict=False))
    return host if found is None else str(found)


def _without_port(text: str) -> str:
    """The address of an entry: some proxies add the port, and then put IPv6 in brackets.

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
    """An address or a network, as settings write it."""
    try:
        return ip_network(text)
    except (ValueError, TypeError):
        rule = "must be a list of addresses or networks"
        raise InvalidParameter("proxies", text, rule, 'write ["10.0.0.7", "192.168.0.0/24"]') from None
