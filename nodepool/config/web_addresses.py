# SPDX-License-Identifier: Apache-2.0
"""Are addresses and names in ``webapp`` of any use? A daemon serves pages without them, so it only warns."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from nodepool.config.problems import Problems, Severity
from nodepool.config.webapp import OPENID_CONNECT

if TYPE_CHECKING:
    from nodepool.config.marks import Document
    from nodepool.config.webapp import Authenticator, WebappSettings

#: Browsers leave these ports out of an origin.
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def check_web_addresses(settings: WebappSettings, document: Document, problems: Problems) -> None:
    """Tell what cannot work in ``webapp.zuul-url``, ``origins``, ``allowed-hosts`` and ``auth.authenticators``."""

    def tell(path: Sequence[Hashable], text: str | None) -> None:
        if text is not None:
            problems.add(document.path, document.line_of(path), path, text, Severity.TOLERATED)

    if settings.webapp_zuul_url is not None:
        tell(["webapp", "zuul-url"], wrong_address(settings.webapp_zuul_url))
    for index, origin in enumerate(settings.webapp_origins):
        tell(["webapp", "origins", index], wrong_origin(origin))
    for index, host in enumerate(settings.webapp_allowed_hosts):
        tell(["webapp", "allowed-hosts", index], wrong_host(host))
    for index, one in enumerate(settings.webapp_authenticators):
        if one.driver == OPENID_CONNECT:
            name, asked = ("issuer_id", one.issuer_id) if one.keys_url is None else ("keys_url", one.keys_url)
            tell(["webapp", "auth", "authenticators", index, name], wrong_provider_address(asked))
    for index, name in repeated_names(settings.webapp_authenticators):
        path = ["webapp", "auth", "authenticators", index, "name"]
        tell(path, f"another authenticator has the name {name!r} already: messages must tell which one is meant")


def wrong_address(given: str) -> str | None:
    """Why links cannot begin with a text; None = they can."""
    parts = _split(given)
    if parts is None or parts.query or parts.fragment:
        return f"{given!r} is no address of web pages, such as https://zuul.example.org or https://ci.example.org/zuul"
    return None


def wrong_origin(given: str) -> str | None:
    """Why no browser sends a text as ``Origin``; None = one may."""
    parts = _split(given)
    if parts is None or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        return f"{given!r} is no origin, such as https://nodepool.example.org or http://10.0.0.1:8080, without a path"
    if parts.port == _DEFAULT_PORTS[parts.scheme]:
        return f"browsers leave port {parts.port} out of an origin with {parts.scheme}: remove it from {given!r}"
    return None


def wrong_provider_address(given: str) -> str | None:
    """Why no OpenID Connect provider is asked at an address; None = it may be: nobody on the way can change answers."""
    parts = _split(given)
    if parts is None or (parts.scheme != "https" and not _is_this_host(str(parts.hostname))):
        return f"{given!r} is no address of a provider: it must begin with https://, or with http:// on this host"
    return None


def _is_this_host(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def wrong_host(given: str) -> str | None:
    """Why no browser asks for a text as a host; None = one may. ``*.`` before a name stands for all below it."""
    name = given.removeprefix("*.")
    if not name or not name.isascii() or not name.isprintable() or set(name) & set(" /*@?#"):
        return f"{given!r} is no name of a host, such as nodepool.example.org or *.example.org"
    if ":" in name and not _is_ipv6(name):
        return f"{given!r} has a port or a scheme: only the name of the host counts"
    return None


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.strip("[]")).version == 6
    except ValueError:
        return False


def repeated_names(authenticators: Sequence[Authenticator]) -> list[tuple[int, str]]:
    """Position and name of those whose name an earlier one has."""
    names = [one.name for one in authenticators]
    return [(index, name) for index, name in enumerate(names) if name in names[:index]]


def _split(given: str) -> SplitResult | None:
    """Parts of an address of HTTP; None = it is none."""
    if not given.isprintable() or " " in given:
        return None
    try:
        parts = urlsplit(given)
        usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # A port that is no number, or a bracket without the other one.
        return None
    return parts if usable else None
