# SPDX-License-Identifier: Apache-2.0
"""Settings of web servers and pages (reference/configuration 2): where they are, and who may change something.

First the settings, then the check of addresses and names in them.
"""

from __future__ import annotations

import ipaddress
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from nodepool.config.problems import PLACEHOLDER, Document, Severity
from nodepool.driver.config import ConfigValue
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    NOT_GIVEN,
    REQUIRED,
    SECONDS,
    ListOf,
    Sections,
    Text,
    Whole,
    key,
)

HS256: Final = "HS256"
RS256: Final = "RS256"
OPENID_CONNECT: Final = "OpenIDConnect"


def _has_its_keys(data: dict[str, Any]) -> dict[str, Any]:
    """A check: what the driver of the section needs is given."""
    import voluptuous as v

    needed = {HS256: "secret", RS256: "public_key"}.get(data.get("driver", ""))
    if needed is not None and not data.get(needed):
        raise v.Invalid(f"{needed} is needed with driver {data['driver']}", path=["driver"])
    for name in ("secret", "client_secret"):
        if PLACEHOLDER.search(str(data.get(name))):
            # The text is in the documentation: everybody could sign with it.
            raise v.Invalid("its environment variable is not set", path=[name])
    return data


class Authenticator(ConfigValue):
    """Who issues tokens, and how they are verified: the keys of a section ``[auth NAME]`` of ``zuul.conf``."""

    checks: ClassVar = [_has_its_keys]
    name_of_key = staticmethod(lambda attribute: attribute)

    name: str = key(FILLED_TEXT, REQUIRED, "Unique; for messages, and for the button of a login.")
    driver: str = key(
        Text(choices=(HS256, RS256, OPENID_CONNECT)), REQUIRED, "How tokens are signed, and where the keys are."
    )
    client_id: str = key(FILLED_TEXT, REQUIRED, "Must be among the audiences (claim ``aud``) of a token.")
    issuer_id: str = key(FILLED_TEXT, REQUIRED, "Must be the issuer (claim ``iss``) of a token.")
    audience: str | None = key(
        FILLED_TEXT, None, "Takes the place of ``client_id`` in the check of ``aud``.", default_text="``client_id``"
    )
    uid_claim: str = key(FILLED_TEXT, "sub", "Claim with the name of the user, for the log.")
    max_validity_time: int | None = key(
        Whole(1),
        None,
        "A token that was issued longer ago is refused, whatever it says itself.",
        unit="seconds",
        default_text="as the token says",
    )
    skew: float = key(SECONDS, 0.0, "How far clocks may differ.")
    secret: str | None = key(FILLED_TEXT, None, "HS256: the shared secret. Give it as ``%(NODEPOOL_...)``.")
    public_key: str | None = key(FILLED_TEXT, None, "RS256: file with the public key of the issuer, PEM.")
    client_secret: str | None = key(
        FILLED_TEXT,
        None,
        "OpenIDConnect: the secret of the client, for a provider that asks for one when a browser logs in. Give it as "
        "``%(NODEPOOL_...)``.",
    )
    scope: str = key(FILLED_TEXT, "openid profile", "OpenIDConnect: what is asked for when a browser logs in.")
    keys_url: str | None = key(
        FILLED_TEXT,
        None,
        "OpenIDConnect: where the keys are.",
        default_text="as the issuer's ``.well-known/openid-configuration`` says",
    )

    def __init__(self, section: dict[str, Any]) -> None:
        self.read_keys(section)


class OperatorRule(ConfigValue):
    """A token with this claim makes its user an operator, who may change something."""

    claim: str = key(FILLED_TEXT, REQUIRED, "Name of a claim; ``a.b`` is ``b`` in ``a``.")
    contains: str = key(FILLED_TEXT, REQUIRED, "The claim is this text, or a list with it.")

    def __init__(self, section: dict[str, Any]) -> None:
        self.read_keys(section)


class WebappSettings(ConfigValue):
    """The keys of ``webapp``."""

    name_of_key = staticmethod(lambda attribute: attribute.replace("_", "-").replace("-", ".", 1))

    webapp_port: int = key(
        Whole(0, 65535, NOT_GIVEN), 8005, "Port of the launcher's web server; 0 = any that is free, see the log."
    )
    webapp_pages_port: int | None = key(
        Whole(0, 65535),
        None,
        "Port of ``nodepool-web``, where it runs on the host of a launcher.",
        default_text="``webapp.port``",
    )
    webapp_listen_address: str = key(
        FILLED_TEXT, "0.0.0.0", "Address that all web servers listen on.", name="webapp.listen_address"
    )
    webapp_builder_port: int = key(
        Whole(0, 65535),
        0,
        "Port of the builder's web server, with health, metrics and its build logs; 0 = there is none.",
    )
    webapp_zuul_url: str | None = key(
        FILLED_TEXT, None, "Where Zuul's web pages are, for links, such as ``https://zuul.example.org``."
    )
    webapp_history: str = key(
        FILLED_TEXT,
        "/var/lib/nodepool/web-history.sqlite",
        "SQLite file of ``nodepool-web``, at most 64 MiB: numbers of seven days, and the last requests and nodes that "
        "ended. Each ``nodepool-web`` has its own. Where it cannot be written, they are kept in memory only.",
    )
    webapp_tls_cert: str | None = key(
        FILLED_TEXT,
        None,
        "File with the certificate of all web servers, PEM; with it they use HTTPS.",
        name="webapp.tls.cert",
    )
    webapp_tls_key: str | None = key(
        FILLED_TEXT, None, "File with the private key of the certificate, PEM.", name="webapp.tls.key"
    )
    webapp_require_login: bool = key(
        FLAG,
        False,
        "true: nothing but health is shown without a token. ``nodepool-web`` has a page to log in.",
        name="webapp.auth.require-login",
    )
    webapp_authenticators: list[Authenticator] = key(
        Sections(Authenticator),
        None,
        "Whose tokens are accepted. Without any nothing can be changed by the web pages.",
        name="webapp.auth.authenticators",
    )
    webapp_operators: list[OperatorRule] = key(
        Sections(OperatorRule), None, "Who may change something; everybody else may look.", name="webapp.auth.operators"
    )
    webapp_allowed_hosts: list[str] = key(
        ListOf(FILLED_TEXT),
        [],
        "Names of the web pages, without port; ``*.example.org`` = all below it. Requests for another name are "
        "refused. Addresses, ``localhost`` and, for its logs, the own name of a builder are always allowed.",
        convert=list,
        default_text="every name is allowed",
    )
    webapp_trusted_proxies: list[str] = key(
        ListOf(FILLED_TEXT),
        [],
        "Addresses and networks, such as ``192.0.2.0/24``, of proxies in front of the web pages: what they say of the "
        "address and the scheme of a client is believed. Those of this host are always trusted.",
        convert=list,
    )
    webapp_origins: list[str] = key(
        ListOf(FILLED_TEXT),
        [],
        "Addresses of the web pages as browsers see them behind a proxy, such as ``https://nodepool.example.org``.",
        convert=list,
    )


# Do names and addresses in ``webapp`` protect anything? A daemon serves pages without them, so it only warns.


def check_web_addresses(settings: WebappSettings, document: Document) -> None:
    """Note what cannot work in ``webapp.allowed-hosts`` and ``webapp.auth.authenticators``."""
    for index, host in enumerate(settings.webapp_allowed_hosts):
        if (wrong := wrong_host(host)) is not None:
            document.note(["webapp", "allowed-hosts", index], wrong, Severity.TOLERATED)
    names = [one.name for one in settings.webapp_authenticators]
    for index, one in enumerate(settings.webapp_authenticators):
        name, asked = ("issuer_id", one.issuer_id) if one.keys_url is None else ("keys_url", one.keys_url)
        if one.driver == OPENID_CONNECT and (wrong := wrong_provider_address(asked)) is not None:
            document.note(["webapp", "auth", "authenticators", index, name], wrong, Severity.TOLERATED)
        if one.name in names[:index]:
            again = f"another authenticator has the name {one.name!r} already: messages must tell which one is meant"
            document.note(["webapp", "auth", "authenticators", index, "name"], again, Severity.TOLERATED)


def wrong_provider_address(given: str) -> str | None:
    """Why no OpenID Connect provider is asked at an address; None = it may be: no one on the way can change answers."""
    try:
        parts = urlsplit(given)
        usable = given.isprintable() and " " not in given and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # A port that is no number, or a bracket without the other one.
        usable = False
    if usable and (parts.scheme == "https" or (parts.scheme == "http" and _is_this_host(str(parts.hostname)))):
        return None
    return f"{given!r} is no address of a provider: it must begin with https://, or with http:// on this host"


def _is_this_host(name: str) -> bool:
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def wrong_host(given: str) -> str | None:
    """Why no browser asks for a text as a host; None = one may. ``*.`` before a name stands for all below it."""
    name = given.removeprefix("*.")
    if not name or not name.isascii() or not name.isprintable() or set(name) & set(" /*@?#"):
        return f"{given!r} is no name of a host, such as nodepool.example.org or *.example.org"
    if ":" in name and _address(name.strip("[]")) is None:
        return f"{given!r} has a port or a scheme: only the name of the host counts"
    return None


def is_network(text: str) -> bool:
    """Is it an IP address, or a network of them?"""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
