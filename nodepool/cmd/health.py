# SPDX-License-Identifier: Apache-2.0
"""``nodepool health``: does the daemon of this machine work? For containers and scripts (reference/commands 2)."""

from __future__ import annotations

import argparse
import http.client
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from nodepool.cmd.app import CommandError

#: Longest status that is read.
MOST_BYTES: Final = 1 << 20
LAUNCHER, BUILDER, WEB = "launcher", "builder", "web"
#: Listen addresses that stand for all of the machine, and where to ask instead.
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1", "": "127.0.0.1"}


def do_health(options: argparse.Namespace) -> int:
    """``nodepool health``; blocks at most for the timeout of HTTP and of ZooKeeper. Returns 0.

    :raises CommandError: the daemon does not work, or there is no answer.
    """
    path = "/health/live" if options.live else "/health/ready"
    target = target_of_url(options.url, path) if options.url else _configured(options, path)
    # Not on this machine: a certificate is made for the name that browsers use.
    verify = bool(options.url)
    if target is None:
        text = _in_zookeeper(options)
    else:
        try:
            status, answer = ask(target, options.timeout, verify=verify)
        except ConnectionRefusedError as error:
            # A launcher may run with --no-webapp; ``nodepool-web`` has nothing else.
            if options.url or options.kind == WEB:
                raise _failure(options.kind, f"{target}: {error.strerror}") from None
            text = _in_zookeeper(options)
        except (OSError, http.client.HTTPException) as error:
            raise _failure(options.kind, f"{target}: {error or type(error).__name__}") from None
        else:
            if status != http.client.OK:
                raise _failure(options.kind, f"{target}: {status} {answer}")
            text = f"{target}: {answer}{_not_in_effect(target, options.timeout, verify=verify)}"
    print(f"{options.kind}: {text}")
    return 0


def _failure(kind: str, text: str) -> CommandError:
    # Its answer: what runs health checks keeps standard output.
    return CommandError(f"{kind}: {text}", answer=True)


def target_of_url(url: str, path: str) -> str:
    """Where an address of the command line is.

    :param path: what to ask for if it names none.
    :raises CommandError: it is no address of a web server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CommandError(f"--url {url}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"--url {url}: expected http://HOST:PORT or https://HOST:PORT, with or without a path")
    asked = parts.path.rstrip("/") or path
    if parts.query:
        asked = f"{asked}?{parts.query}"
    return _url(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), asked)


def _url(scheme: str, host: str, port: int, path: str) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def target_of_webapp(kind: str, webapp: Mapping[str, Any], path: str) -> str | None:
    """Where a daemon of this machine has its web server; None = the configuration does not tell.

    :param kind: ``launcher``, ``web``. A builder is looked for in ZooKeeper, as ``webapp.builder-port`` is optional.
    :param webapp: the section, as it stands in the file.
    """
    port = webapp.get("port", 8005)
    if kind == WEB:
        port = webapp.get("pages-port", port)
    if kind == BUILDER or not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        return None
    address = webapp.get("listen_address", "0.0.0.0")
    host = _ANY.get(str(address), str(address))
    return _url("https" if webapp.get("tls") else "http", host, port, path)


def _configured(options: argparse.Namespace, path: str) -> str | None:
    """Raises ConfigError: the file cannot be read."""
    from nodepool.config.loader import read_documents
    from nodepool.config.problems import Problems

    # Only this section: a health check must not import drivers, twice a minute in each container.
    document, _ = read_documents(options.config, options.secure, Problems())
    webapp = document.data.get("webapp")
    target = target_of_webapp(options.kind, webapp if isinstance(webapp, dict) else {}, path)
    if target is None and options.kind == WEB:
        raise CommandError("webapp.port is no fixed port, so the address is not known: name it with --url")
    return target


def _not_in_effect(target: str, timeout: float, *, verify: bool) -> str:
    """Why a daemon that is ready runs with an older configuration; empty = it does not, or does not say. Blocks."""
    import json

    above = target.removesuffix("/ready")
    if above == target:
        return ""
    try:
        _, answer = ask(f"{above}/status", timeout, MOST_BYTES, verify=verify)
        errors = json.loads(answer)["reload_errors"]
        # A list of texts. Other programs may answer there.
        found = "; ".join(" ".join(error.split()) for error in errors)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return found and f"; the changed configuration is not in effect: {found}"


def ask(target: str, timeout: float, most: int = 200, *, verify: bool) -> tuple[int, str]:
    """Status and first line of the answer. Blocks. Raises OSError, HTTPException.

    :param timeout: of the connection, and of each part of the answer; seconds.
    :param most: bytes that are read.
    :param verify: check the certificate.
    """
    scheme, place, path, query, _ = urlsplit(target)
    connection: http.client.HTTPConnection
    if scheme == "https":
        import ssl

        context = ssl.create_default_context()
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(place, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(place, timeout=timeout)
    try:
        connection.request("GET", f"{path}?{query}" if query else path, headers={"Connection": "close"})
        answer = connection.getresponse()
        lines = answer.read(most).decode("utf-8", "replace").splitlines()
        return answer.status, lines[0] if lines else ""
    finally:
        connection.close()


def _in_zookeeper(options: argparse.Namespace) -> str:
    """What the registry of components says. Blocks. Raises CommandError, ConfigError, ZKException."""
    from nodepool.cmd.session import open_zookeeper
    from nodepool.zk.components import read_hosts

    own = socket.gethostname()
    with open_zookeeper(options) as zk:
        if own not in read_hosts(zk.client, options.kind):
            raise _failure(options.kind, f"none is registered in ZooKeeper for {own}")
    return f"registered in ZooKeeper for {own}"
