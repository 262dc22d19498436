# SPDX-License-Identifier: Apache-2.0
"""Several real ZooKeeper servers of our own that vote: they go on while most of them live."""

from __future__ import annotations

from pathlib import Path

from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import free_ports
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: A busy machine with several Java processes.
START_SECONDS = 90.0
#: How long one that was elected may take until it listens. A follower tries again when it is refused; when a link ends,
#: it elects anew, while the one that was elected waits for it and for nothing else for ten seconds (initLimit).
ELECTED_SECONDS = 3.0


class ZooKeeperEnsemble:
    """Servers by number from 0. What is sent to `ZooKeeperServer` in tests can be sent to all of them at once.

    :param directory: everything they write goes here.
    :param links: let each server go through a link of its own to each of the others as a leader; see `links`.
    """

    def __init__(self, directory: Path, count: int = 3, *, links: bool = False) -> None:
        self.directory = directory
        self._count = count
        self._with_links = links
        #: By the numbers of a server and of another one that it would follow.
        self.links: dict[tuple[int, int], TcpProxy] = {}
        self._certificates: Certificates | None = None
        self.servers: list[ZooKeeperServer] = []

    @property
    def certificates(self) -> Certificates:
        if self._certificates is None:
            raise RuntimeError("ZooKeeper was not started")
        return self._certificates

    @property
    def tls_ports(self) -> list[int]:
        """All TLS ports on 127.0.0.1."""
        return [server.tls_port for server in self.servers]

    def start(self) -> None:
        """Starts those that do not run, and blocks until they serve with a leader.

        :raises MissingRequirement: see `ZooKeeperServer.start`.
        :raises AssertionError: one does not answer, or they do not agree.
        """
        if not self.servers:
            self._make_servers()
        for server in self.servers:
            if not server.running:
                server.start()
        wait_for("all ZooKeeper servers serve", lambda: len(self.modes()) == self._count, START_SECONDS)

    def stop(self) -> None:
        """Ends all."""
        for server in self.servers:
            server.stop()
        for link in self.links.values():
            link.stop()

    def modes(self) -> dict[int, str]:
        """``leader`` or ``follower`` by the number of each server that serves now."""
        modes = {}
        for number, server in enumerate(self.servers):
            if mode := server.mode():
                modes[number] = mode
        return modes

    def leader(self) -> int | None:
        """Number of the server that leads now; None: there is none."""
        return next((number for number, mode in self.modes().items() if mode == "leader"), None)

    def serves(self) -> bool:
        """Do most of them follow a leader now?"""
        modes = self.modes()
        return "leader" in modes.values() and 2 * len(modes) > self._count

    def tls_hosts(self, chroot: str = "") -> str:
        """Connection string of the TLS ports."""
        return ",".join(server.tls_hosts() for server in self.servers) + chroot

    def plain_hosts(self, chroot: str = "") -> str:
        """Connection string of the ports without TLS, for looks behind the scenes."""
        return ",".join(server.plain_hosts() for server in self.servers) + chroot

    def _make_servers(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._certificates = make_certificates(self.directory / "ca")
        ports = free_ports(2 * self._count)
        # Limits in ticks: what a busy machine needs, and still less than the shortest session of a test.
        settings: dict[str, object] = {"initLimit": 50, "syncLimit": 15}
        for number in range(self._count):
            for other in range(self._count):
                port = ports[2 * other]
                if self._with_links and other != number:
                    link = self.links[number, other] = TcpProxy(port, patience=ELECTED_SECONDS)
                    link.start()
                    port = link.port
                settings[f"server.{other + 1}"] = f"127.0.0.1:{port}:{ports[2 * other + 1]}"
            directory = self.directory / str(number)
            (directory / "data").mkdir(parents=True)
            (directory / "data" / "myid").write_text(str(number + 1), encoding="ascii")
            self.servers.append(ZooKeeperServer(directory, settings=settings, certificates=self._certificates))
