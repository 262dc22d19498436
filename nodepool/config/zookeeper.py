# SPDX-License-Identifier: Apache-2.0
"""The ZooKeeper part of a configuration (reference/configuration 2). Reading it needs neither schemas nor drivers.

First the settings, then the check of the files that ``zookeeper-tls`` names, then the connection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.config.problems import Document, Problems, Severity, did_you_mean, listing, show
from nodepool.exceptions import ConfigError, ZKException
from nodepool.model.config_keys import FILLED_TEXT, PORT, REQUIRED, TEXT, ConfigValue, Seconds, Sections, key, keys_of
from nodepool.zk.connection import TlsFiles, check_tls_files

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient

DEFAULT_PORT: Final = 2281
MAX_PORT: Final = 65535


class ZooKeeperServer(ConfigValue):
    """One entry of ``zookeeper-servers``."""

    host: str = key(FILLED_TEXT, REQUIRED, "Name or address.")
    port: int = key(PORT, DEFAULT_PORT, "The default is the usual port with TLS.")
    chroot: str | None = key(TEXT.or_null(), None, "The path that Zuul uses as its root in ZooKeeper.")

    def __init__(self, host: str, port: int = DEFAULT_PORT, chroot: str | None = None) -> None:
        self.host = host
        self.port = port
        self.chroot = chroot

    def __repr__(self) -> str:
        return f"<ZooKeeperServer {self.host}:{self.port}{self.chroot or ''}>"


def connection_string(servers: Iterable[ZooKeeperServer]) -> str:
    """Kazoo's host list (reference/configuration 2): ``host:port`` by commas, IPv6 in brackets, then the chroot.

    Kazoo takes all that follows the first slash for the chroot, so it is named once, at the end.

    :raises ConfigError: servers with different chroots. One without a chroot has that of the others.
    """
    parts = []
    chroots = set()
    for server in servers:
        host = f"[{server.host}]" if ":" in server.host and not server.host.startswith("[") else server.host
        parts.append(f"{host}:{server.port}")
        if chroot := (server.chroot or "").strip("/"):
            chroots.add(f"/{chroot}")
    if len(chroots) > 1:
        raise ConfigError(f"zookeeper-servers: all servers must have the same chroot, not {', '.join(sorted(chroots))}")
    return ",".join(parts) + "".join(chroots)


class ZooKeeperSettings(ConfigValue):
    """How to connect to ZooKeeper."""

    ignore_equality: ClassVar[list[str]] = ["tls_places"]

    zookeeper_servers: list[ZooKeeperServer] = key(
        Sections(ZooKeeperServer), REQUIRED, "The servers. They can be exchanged while the launcher runs."
    )
    zookeeper_tls_cert: str | None = key(FILLED_TEXT, REQUIRED, "Path of a PEM file.", name="zookeeper-tls.cert")
    zookeeper_tls_key: str | None = key(FILLED_TEXT, REQUIRED, "Path of a PEM file.", name="zookeeper-tls.key")
    zookeeper_tls_ca: str | None = key(FILLED_TEXT, REQUIRED, "Path of a PEM file.", name="zookeeper-tls.ca")
    zookeeper_timeout: float = key(Seconds(0, more=True), 10.0, "Session timeout.")

    def __init__(self) -> None:
        self.read_keys({})
        self.zookeeper_servers = []
        #: Key below ``zookeeper-tls`` -> file and line in which it stands.
        self.tls_places: dict[str, tuple[str, int | None]] = {}

    @property
    def tls_files(self) -> tuple[str | None, str | None, str | None]:
        """PEM files of certificate, key and CA."""
        return self.zookeeper_tls_cert, self.zookeeper_tls_key, self.zookeeper_tls_ca


SERVER_KEYS: Final = tuple(item.name for item in keys_of(ZooKeeperServer))
TLS_KEYS: Final = tuple(item.path[1] for item in keys_of(ZooKeeperSettings) if item.path[0] == "zookeeper-tls")


def _no_host_name(host: str) -> str | None:
    """Why a text can be no name of a host, as Python's name look-up judges it; None = it can be."""
    try:
        host.strip().encode("idna")
    except UnicodeError as error:
        return str(error)
    return None


def read_zookeeper(settings: ZooKeeperSettings, main: Document, secure: Document | None, *, secure_given: bool) -> None:
    """Take the keys that are there. What is needed to connect and is in neither file is noted, too.

    :param secure: its servers and TLS files replace those of the main file, which may be a placeholder.
    :param secure_given: was a secure file named? An empty one is no document.
    """
    replaced = [] if secure is None else [name for name, value in secure.data.items() if value is not None]
    if "zookeeper-timeout" in main.data:
        _read_timeout(settings, main, main.data["zookeeper-timeout"])
    seen = set()
    for document, left_out in ((main, replaced), (secure, ())):
        for name, read in (("zookeeper-servers", _read_servers), ("zookeeper-tls", _read_tls)):
            if document is None or name not in document.data or name in left_out:
                continue
            if document.data[name] is None:
                text = "there is nothing below it (null); remove it, a daemon takes it as not given"
                document.note([name], text, Severity.TOLERATED)
                continue
            seen.add(name)
            read(settings, document, document.data[name])
    needed = {"zookeeper-servers": "a list of servers", "zookeeper-tls": "a mapping with cert, key and ca"}
    hint = "" if secure_given else "; if the secure file has it, name that file with -s"
    for name in [name for name in needed if name not in seen]:
        message = f"required, but missing: {needed[name]}; Nodepool talks to ZooKeeper over TLS only{hint}"
        # Of the file as a whole: it has no line.
        main.problems.add(main.path, None, [name], message, Severity.INCOMPLETE)


def _read_servers(settings: ZooKeeperSettings, document: Document, value: Any) -> None:
    path = ["zookeeper-servers"]
    if not isinstance(value, list) or not value:
        got = "an empty list" if value == [] else show(value)
        document.note(path, f"expected a list of servers, each with host and port, got {got}")
        return
    servers = [_server(document, [*path, index], entry) for index, entry in enumerate(value)]
    settings.zookeeper_servers = [server for server in servers if server is not None]
    # The connection has one chroot for all servers.
    first = ""
    for index, server in enumerate(servers):
        chroot = "" if server is None else (server.chroot or "").strip("/")
        first = first or chroot
        if chroot and chroot != first:
            message = f"expected '/{first}', as the servers before it have: all have the same chroot, got '/{chroot}'"
            document.note([*path, index, "chroot"], message)


def _server(document: Document, path: list[Any], entry: Any) -> ZooKeeperServer | None:
    """None: it cannot be used."""
    if not isinstance(entry, dict):
        document.note(path, f"expected a mapping with host, port and chroot, got {show(entry)}")
        return None
    _note_unknown_keys(document, path, entry, SERVER_KEYS)
    host, port, chroot = entry.get("host"), entry.get("port", DEFAULT_PORT), entry.get("chroot")
    wrong: dict[str, str] = {}
    if not isinstance(host, str) or not host.strip():
        wrong["host"] = "host is required: the name or address of a server, a text"
    elif (why := _no_host_name(host)) is not None:
        wrong["host"] = f"expected the name or address of a server, got {show(host)}: {why}"
    if isinstance(port, str) and port.isdecimal():
        message = f"expected a port, 1 to {MAX_PORT}, got {show(port)}; it is read without the quotes"
        document.note([*path, "port"], message, Severity.TOLERATED)
        port = int(port)
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= MAX_PORT:
        wrong["port"] = f"expected a port, 1 to {MAX_PORT}, got {show(port)}"
    if chroot is not None and (not isinstance(chroot, str) or (chroot and not chroot.startswith("/"))):
        wrong["chroot"] = f"expected a path that begins with '/', got {show(chroot)}"
    for name, text in wrong.items():
        document.note([*path, name] if name in entry else path, text)
    return None if wrong else ZooKeeperServer(str(host), port, chroot or None)


def _read_tls(settings: ZooKeeperSettings, document: Document, value: Any) -> None:
    path = ["zookeeper-tls"]
    if not isinstance(value, dict):
        document.note(path, f"expected a mapping with cert, key and ca, got {show(value)}")
        return
    _note_unknown_keys(document, path, value, TLS_KEYS)
    for name in TLS_KEYS:
        if name not in value:
            document.note(path, f"{name} is missing; cert, key and ca are all needed, each the path of a PEM file")
        elif not isinstance(value[name], str) or not value[name]:
            document.note([*path, name], f"expected the path of a PEM file, got {show(value[name])}")
    texts = [value[name] if isinstance(value.get(name), str) else None for name in TLS_KEYS]
    settings.zookeeper_tls_cert, settings.zookeeper_tls_key, settings.zookeeper_tls_ca = texts
    settings.tls_places = {name: (document.path, document.line_of([*path, name])) for name in TLS_KEYS}


def _read_timeout(settings: ZooKeeperSettings, document: Document, value: Any) -> None:
    path = ["zookeeper-timeout"]
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        message = f"expected a number of seconds above 0, got {show(value)}; it is read without the quotes"
        document.note(path, message, Severity.TOLERATED)
        value = float(value)
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value <= 0:
        document.note(path, f"expected a number of seconds above 0, got {show(value)}")
        return
    settings.zookeeper_timeout = float(value)


def _note_unknown_keys(document: Document, path: list[Any], value: dict[Any, Any], known: Sequence[str]) -> None:
    for name in value:
        if name not in known:
            message = f"unknown key{did_you_mean(name, known)} (allowed: {listing(known)})"
            document.note([*path, name], message, Severity.UNKNOWN_KEY)


# The files that ``zookeeper-tls`` names: what is wrong with them, and where the configuration names them.


def add_tls_problems(settings: ZooKeeperSettings, problems: Problems, unreadable: Severity = Severity.ERROR) -> None:
    """Read the files, and note everything that keeps them from being used. That a key is missing is noted elsewhere.

    :param unreadable: how bad it is that a file is not there, or may not be read by this user.
    """
    cert, key, ca = settings.tls_files
    if not (cert and key and ca):
        return
    for problem in check_tls_files(TlsFiles(cert, key, ca)):
        file, line = settings.tls_places.get(problem.name, ("zookeeper-tls", None))
        severity = Severity.ERROR if problem.readable else unreadable
        problems.add(file, line, ["zookeeper-tls", problem.name], problem.text, severity)


def refuse_bad_tls_files(settings: ZooKeeperSettings) -> None:
    """Raises ConfigError: a file of ``zookeeper-tls`` cannot be used. Each is a line, with file, line and key."""
    problems = Problems()
    add_tls_problems(settings, problems)
    errors = problems.errors()
    if errors:
        raise ConfigError("\n".join(map(str, errors)))


def make_client(settings: ZooKeeperSettings) -> ZooKeeperClient:
    """The connection that a configuration describes; not connected yet.

    :raises ZKException: there are no servers.
    :raises ConfigError: a TLS file cannot be used.
    """
    # Who only reads a configuration does not need Kazoo.
    from nodepool.zk.client import ZooKeeperClient

    if not settings.zookeeper_servers:
        raise ZKException("No ZooKeeper servers configured: zookeeper-servers is missing or empty")
    refuse_bad_tls_files(settings)
    hosts = connection_string(settings.zookeeper_servers)
    return ZooKeeperClient(hosts, False, settings.zookeeper_timeout, *settings.tls_files)
