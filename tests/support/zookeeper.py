# SPDX-License-Identifier: Apache-2.0
"""A real ZooKeeper of our own: plain and TLS port on loopback, own data, own certificates."""

from __future__ import annotations

import glob
import shutil
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.requirements import MissingRequirement

JAR_DIRECTORY = "/usr/share/java"
JARS = (
    *("zookeeper", "zookeeper-jute", "netty*", "slf4j-api", "slf4j-simple", "log4j*", "commons-cli", "commons-io"),
    *("snappy-java", "metrics-core", "jackson*"),
)
#: Unit of its clock. The shortest session is two ticks.
TICK_MS = 200
REMEDY = "apt-get install zookeeper default-jre-headless"


class ZooKeeperServer:
    """One server, alone or one of an ensemble (tests/support/zookeeper_ensemble.py).

    :param directory: everything it writes goes here.
    :param fsync: False answers writes before they are on the disk: right for tests, wrong for measurements.
    :param settings: more lines of the configuration file.
    :param certificates: those of the other servers; None: it makes its own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        fsync: bool = False,
        settings: Mapping[str, object] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.directory = directory
        self._fsync = fsync
        self._more_settings = dict(settings or {})
        self.port, self.tls_port = 0, 0
        self._certificates = certificates
        self._process: ChildProcess | None = None

    @property
    def certificates(self) -> Certificates:
        if self._certificates is None:
            raise RuntimeError("ZooKeeper was not started")
        return self._certificates

    def start(self) -> None:
        """Starts it and blocks until it answers.

        :raises MissingRequirement: Java or the jars are not installed.
        :raises AssertionError: it does not answer; the text has the end of its log.
        """
        class_path = find_jars()
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._certificates is None:
            self._certificates = make_certificates(self.directory / "ca")
        if not self.port:
            self.port, self.tls_port = free_ports(2)
        config = self.directory / "zoo.cfg"
        config.write_text(self._settings(), encoding="utf-8")
        # The second compiler of Java takes as much time as all that tests ask for.
        command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process = ChildProcess([*command, "-cp", class_path, main, str(config)], self.directory / "log")
        self._process.start_until("ZooKeeper", self._answers)

    def stop(self) -> None:
        """Ends it and waits for that; it can be started again with its data."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Ends it as a crash does; it can be started again with its data."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def tls_ports(self) -> list[int]:
        """All TLS ports on 127.0.0.1."""
        return [self.tls_port]

    def tls_hosts(self, chroot: str = "") -> str:
        """Connection string of the TLS port."""
        return f"127.0.0.1:{self.tls_port}{chroot}"

    def plain_hosts(self, chroot: str = "") -> str:
        """Connection string of the port without TLS, for looks behind the scenes."""
        return f"127.0.0.1:{self.port}{chroot}"

    def command(self, word: str, *, tls: bool = False) -> str:
        """Answer of a four letter command. ``cons`` lists the connections of the port that it comes through.

        :raises OSError: nobody listens.
        """
        port = self.tls_port if tls else self.port
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain, ExitStack() as opened:
            connection = opened.enter_context(self._tls_context().wrap_socket(plain)) if tls else plain
            connection.sendall(word.encode())
            answer = b""
            while part := connection.recv(65536):
                answer += part
        return answer.decode()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty: it does not serve just now."""
        try:
            answer = self.command("srvr")
        except OSError:
            return ""
        return answer.partition("Mode: ")[2].partition("\n")[0]

    def serves(self) -> bool:
        """Does it answer requests now?"""
        return bool(self.mode())

    def counters(self) -> dict[str, int]:
        """The integer values of ``mntr``, e.g. ``zk_packets_received``."""
        values = {}
        for line in self.command("mntr").splitlines():
            name, _, value = line.partition("\t")
            if value.strip().lstrip("-").isdigit():
                values[name] = int(value)
        return values

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.certificates.ca)
        context.load_cert_chain(self.certificates.client_cert, self.certificates.client_key)
        return context

    def _answers(self) -> bool:
        try:
            if self.command("ruok") != "imok":
                return False
            return self.command("ruok", tls=True) == "imok"  # that port opens later than the plain one
        except OSError:
            return False

    def _settings(self) -> str:
        settings = {
            "tickTime": TICK_MS,
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": 60000,
            "dataDir": self.directory / "data",
            "clientPortAddress": "127.0.0.1",
            "clientPort": self.port,
            "secureClientPortAddress": "127.0.0.1",
            "secureClientPort": self.tls_port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.certificates.keystore,
            "ssl.trustStore.location": self.certificates.ca,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self._more_settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def find_jars() -> str:
    """Class path of the Debian package. :raises MissingRequirement: Java or jars are missing."""
    if shutil.which("java") is None:
        raise MissingRequirement("Java", REMEDY)
    jars = [path for name in JARS for path in sorted(glob.glob(f"{JAR_DIRECTORY}/{name}.jar"))]
    if not any(path.endswith("/zookeeper.jar") for path in jars):
        raise MissingRequirement(f"ZooKeeper's jars in {JAR_DIRECTORY}", REMEDY)
    return ":".join(jars)
