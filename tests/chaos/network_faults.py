# SPDX-License-Identifier: Apache-2.0
"""Faults of the network and of the ZooKeeper ensemble."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Protocol

from tests.chaos.links import Links
from tests.chaos.schedule import Fault
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble

#: A link that is slow has at least this share of the greatest delay.
LEAST_DELAY = 0.2
#: How long a fault of the ensemble waits for a leader that it can kill.
ELECTION_SECONDS = 5.0


class Network(Protocol):
    """What these faults need of a world.

    ``links``: the ways of each launcher or builder to ZooKeeper and a cloud.
    """

    links: list[Links]
    zookeeper: ZooKeeperServer | ZooKeeperEnsemble

    def note(self, text: str) -> None: ...


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class LinkFaults:
    """A method for each kind of fault of the ways of one launcher; each blocks until it is over."""

    def __init__(self, world: Network) -> None:
        self._world = world

    def link_cut(self, fault: Fault) -> None:
        """Silence both ways between a launcher and all ZooKeeper servers; often for longer than its session lives."""
        self._cut(fault, self._links(fault).zookeeper)

    def link_slow(self, fault: Fault) -> None:
        """Latency and jitter between a launcher and ZooKeeper."""
        self._slow_down(fault, self._links(fault).zookeeper)

    def cloud_link_cut(self, fault: Fault) -> None:
        """Silence both ways between a launcher and the cloud, which serves the others."""
        self._cut(fault, self._links(fault).cloud)

    def cloud_link_slow(self, fault: Fault) -> None:
        """Latency and jitter between a launcher and the cloud."""
        self._slow_down(fault, self._links(fault).cloud)

    def _links(self, fault: Fault) -> Links:
        assert fault.launcher is not None
        return self._world.links[fault.launcher]

    @staticmethod
    def _cut(fault: Fault, links: Sequence[TcpProxy]) -> None:
        for link in links:
            link.silence()
        pause(fault.seconds)
        for link in links:
            link.resume()

    @staticmethod
    def _slow_down(fault: Fault, links: Sequence[TcpProxy]) -> None:
        for link in links:
            link.delay_seconds = (LEAST_DELAY * fault.amount, fault.amount)
        pause(fault.seconds)
        for link in links:
            link.delay_seconds = (0.0, 0.0)


class ZooKeeperFaults:
    """A method for each kind of fault of ZooKeeper; each blocks until all servers serve again."""

    def __init__(self, world: Network, seed: int) -> None:
        self._world = world
        self._random = Random(f"zookeeper {seed}")

    def zookeeper_kill(self, fault: Fault) -> str:
        """The only server dies and comes back, or any one of several."""
        zookeeper = self._world.zookeeper
        if isinstance(zookeeper, ZooKeeperEnsemble):
            return self._kill(fault, [self._random.randrange(len(zookeeper.servers))])
        zookeeper.kill()
        pause(fault.seconds)
        zookeeper.start()
        self._world.note("zookeeper is back")
        return ""

    def leader_kill(self, fault: Fault) -> str:
        """The leader dies; the others elect another one, which it follows when it is back."""
        leader = self._leader()
        return "there was no leader" if leader is None else self._kill(fault, [leader])

    def quorum_loss(self, fault: Fault) -> str:
        """Most servers die, the leader among them: the one that is left serves nobody until they are back."""
        leader = self._leader()
        if leader is None:
            return "there was no leader"
        others = [number for number in range(len(self._ensemble.servers)) if number != leader]
        return self._kill(fault, [leader, *self._random.sample(others, len(others) // 2)])

    def server_cut(self, fault: Fault) -> str:
        """Silence both ways between one server, any one, and the others; its clients do not notice at once."""
        number = self._random.randrange(len(self._ensemble.servers))
        before = self._ensemble.modes()
        links = [link for pair, link in self._ensemble.links.items() if number in pair]
        for link in links:
            link.silence()
        pause(fault.seconds)
        for link in links:
            link.resume()
        # Waits until all serve.
        self._ensemble.start()
        self._world.note("zookeeper is whole again")
        return f"cut off {number} of {before}, now {self._ensemble.modes()}"

    @property
    def _ensemble(self) -> ZooKeeperEnsemble:
        zookeeper = self._world.zookeeper
        assert isinstance(zookeeper, ZooKeeperEnsemble), "this fault needs --zookeepers 3"
        return zookeeper

    def _leader(self) -> int | None:
        """Waits for a leader."""
        for _ in range(round(ELECTION_SECONDS / 0.05)):
            if (leader := self._ensemble.leader()) is not None:
                return leader
            pause(0.05)
        return None

    def _kill(self, fault: Fault, numbers: Sequence[int]) -> str:
        before = self._ensemble.modes()
        for number in numbers:
            self._ensemble.servers[number].kill()
        pause(fault.seconds)
        self._ensemble.start()
        self._world.note("zookeeper is whole again")
        return f"killed {numbers} of {before}, now {self._ensemble.modes()}"
