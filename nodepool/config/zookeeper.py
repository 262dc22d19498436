# SPDX-License-Identifier: Apache-2.0
"""The ZooKeeper part of a configuration (reference/configuration 2). Reading it needs neither schemas nor drivers.

First the settings, then the check of the files that ``zookeeper-tls`` names, then the connection.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.config.marks import Document
from nodepool.config.problems import Problems, Severity, did_you_mean, listing, show
from nodepool.exceptions import ConfigError, ZKException
from nodepool.model.config_keys import FILLED_TEXT, PORT, REQUIRED, TEXT, ConfigValue, Number, Sections, key, keys_of
from nodepool.zk.connect_failure import TlsFiles, check_tls_files

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
    zookeeper_timeout: float = key(Number(0, more=True), 10.0, "Session timeout.", unit="seconds")

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


class ZooKeeperReader:
    """Puts the ZooKeeper part of one or two files into a `ZooKeeperSettings`; notes everything that is wrong."""

    def __init__(self, settings: ZooKeeperSettings, problems: Problems) -> None:
        self._settings = settings
        self._problems = problems
        self._document = Document("")
        self._seen: set[str] = set()

    def read(self, main: Document, secure: Document | None) -> None:
        """Take the keys that are there.

        :param secure: its servers and TLS files replace those of the main file, which may be a placeholder.
        """
        replaced = {}
        if secure is not None and isinstance(secure.data, dict):
            replaced = {name: value for name, value in secure.data.items() if value is not None}
        self._read(main, replaced)
        if isinstance(main.data, dict) and "zookeeper-timeout" in main.data:
            self._timeout(main.data["zookeeper-timeout"])
        if secure is not None:
            self._read(secure, {})

    def _read(self, document: Document, replaced: Container[str]) -> None:
        self._document = document
        data = document.data
        if not isinstance(data, dict):
            return
        for name, read in (("zookeeper-servers", self._servers), ("zookeeper-tls", self._tls)):
            if name not in data or name in replaced:
                continue
            if data[name] is None:
                text = "there is nothing below it (null); remove it, a daemon takes it as not given"
                self._problem([name], text, Severity.TOLERATED)
                continue
            self._seen.add(name)
            read(data[name])

    def require(self, document: Document, *, secure_given: bool) -> None:
        """Note what is needed to connect and was in neither file.

        :param secure_given: was there a secure file?
        """
        needed = {"zookeeper-servers": "a list of servers", "zookeeper-tls": "a mapping with cert, key and ca"}
        hint = "" if secure_given else "; if the secure file has it, name that file with -s"
        for name, what in needed.items():
            if name not in self._seen:
                message = f"required, but missing: {what}; Nodepool talks to ZooKeeper over TLS only{hint}"
                self._problems.add(document.path, None, [name], message, Severity.INCOMPLETE)

    def _problem(self, path: Sequence[Any], message: str, severity: Severity = Severity.ERROR) -> None:
        self._problems.add(self._document.path, self._document.line_of(path), path, message, severity)

    def _servers(self, value: Any) -> None:
        path = ["zookeeper-servers"]
        if not isinstance(value, list) or not value:
            got = "an empty list" if value == [] else show(value)
            self._problem(path, f"expected a list of servers, each with host and port, got {got}")
            return
        servers = [self._server([*path, index], entry) for index, entry in enumerate(value)]
        self._settings.zookeeper_servers = [server for server in servers if server is not None]
        self._one_chroot(path, servers)

    def _one_chroot(self, path: list[Any], servers: Sequence[ZooKeeperServer | None]) -> None:
        """The connection has one chroot for all servers."""
        first = ""
        for index, server in enumerate(servers):
            chroot = "" if server is None else (server.chroot or "").strip("/")
            first = first or chroot
            if chroot and chroot != first:
                message = (
                    f"expected '/{first}', as the servers before it have: all have the same chroot, got '/{chroot}'"
                )
                self._problem([*path, index, "chroot"], message)

    def _server(self, path: list[Any], entry: Any) -> ZooKeeperServer | None:
        if not isinstance(entry, dict):
            self._problem(path, f"expected a mapping with host, port and chroot, got {show(entry)}")
            return None
        self._unknown_keys(path, entry, SERVER_KEYS)
        host, port, chroot = entry.get("host"), entry.get("port", DEFAULT_PORT), entry.get("chroot")
        fine = True
        if not isinstance(host, str) or not host.strip():
            where = [*path, "host"] if "host" in entry else path
            self._problem(where, "host is required: the name or address of a server, a text")
            fine = False
        elif (wrong := _no_host_name(host)) is not None:
            self._problem([*path, "host"], f"expected the name or address of a server, got {show(host)}: {wrong}")
            fine = False
        if isinstance(port, str) and port.isdecimal():
            message = f"expected a port, 1 to {MAX_PORT}, got {show(port)}; it is read without the quotes"
            self._problem([*path, "port"], message, Severity.TOLERATED)
            port = int(port)
        if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= MAX_PORT:
            self._problem([*path, "port"], f"expected a port, 1 to {MAX_PORT}, got {show(port)}")
            fine = False
        if chroot is not None and (not isinstance(chroot, str) or (chroot and not chroot.startswith("/"))):
            self._problem([*path, "chroot"], f"expected a path that begins with '/', got {show(chroot)}")
            fine = False
        return ZooKeeperServer(host, port, chroot or None) if fine and isinstance(host, str) else None

    def _tls(self, value: Any) -> None:
        path = ["zookeeper-tls"]
        if not isinstance(value, dict):
            self._problem(path, f"expected a mapping with cert, key and ca, got {show(value)}")
            return
        self._unknown_keys(path, value, TLS_KEYS)
        for name in TLS_KEYS:
            if name not in value:
                self._problem(path, f"{name} is missing; cert, key and ca are all needed, each the path of a PEM file")
            elif not isinstance(value[name], str) or not value[name]:
                self._problem([*path, name], f"expected the path of a PEM file, got {show(value[name])}")
        texts = [value[name] if isinstance(value.get(name), str) else None for name in TLS_KEYS]
        settings = self._settings
        settings.zookeeper_tls_cert, settings.zookeeper_tls_key, settings.zookeeper_tls_ca = texts
        document = self._document
        settings.tls_places = {name: (document.path, document.line_of([*path, name])) for name in TLS_KEYS}

    def _timeout(self, value: Any) -> None:
        if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            message = f"expected a number of seconds above 0, got {show(value)}; it is read without the quotes"
            self._problem(["zookeeper-timeout"], message, Severity.TOLERATED)
            value = float(value)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value <= 0:
            self._problem(["zookeeper-timeout"], f"expected a number of seconds above 0, got {show(value)}")
            return
        self._settings.zookeeper_timeout = float(value)

    def _unknown_keys(self, path: list[Any], value: dict[Any, Any], known: Sequence[str]) -> None:
        for name in value:
            if name not in known:
                hint = did_you_mean(name, known)
                message = f"unknown key{hint} (allowed: {listing(known)})"
                self._problem([*path, name], message, Severity.UNKNOWN_KEY)


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
    errors = problems.errors(strict=True)
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
