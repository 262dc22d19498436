# SPDX-License-Identifier: Apache-2.0
"""What a stretch of work cost: ZooKeeper packets per connection, CPU of a process."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from tests.support.zookeeper import ZooKeeperServer

#: One line of ZooKeeper's ``cons``: packets that the server received from and sent to one session.
CONNECTION = re.compile(r"recved=(\d+),sent=(\d+),sid=0x([0-9a-f]+)")


@dataclass(frozen=True)
class Packets:
    """Packets as the server counts them: ``received`` are requests, ``sent`` are answers and watch events."""

    received: int
    sent: int

    @property
    def total(self) -> int:
        return self.received + self.sent

    def __add__(self, other: Packets) -> Packets:
        return Packets(self.received + other.received, self.sent + other.sent)

    def __sub__(self, other: Packets) -> Packets:
        return Packets(self.received - other.received, self.sent - other.sent)


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, or the difference of two.

    ``launcher`` is everything that neither the load nor the observer caused.
    """

    launcher: Packets
    client: Packets
    cpu_seconds: float
    client_cpu_seconds: float

    @classmethod
    def zero(cls) -> Reading:
        return cls(Packets(0, 0), Packets(0, 0), 0.0, 0.0)

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            self.launcher + other.launcher,
            self.client + other.client,
            self.cpu_seconds + other.cpu_seconds,
            self.client_cpu_seconds + other.client_cpu_seconds,
        )

    def __sub__(self, other: Reading) -> Reading:
        return Reading(
            self.launcher - other.launcher,
            self.client - other.client,
            self.cpu_seconds - other.cpu_seconds,
            self.client_cpu_seconds - other.client_cpu_seconds,
        )


def read_counters(
    zookeeper: ZooKeeperServer, client_session: int, observer_session: int, cpu_seconds: float
) -> Reading:
    """Reads all counters now.

    :param client_session: id of the load's session, to tell its packets from the launcher's.
    :param observer_session: id of a session whose packets do not count.
    :param cpu_seconds: what the launcher used so far.
    """
    sessions = {
        int(session, 16): Packets(int(received), int(sent))
        for tls in (False, True)
        for received, sent, session in CONNECTION.findall(zookeeper.command("cons", tls=tls))
    }
    counters = zookeeper.counters()
    everybody = Packets(counters["zk_packets_received"], counters["zk_packets_sent"])
    client = sessions[client_session % 2**64]
    launcher = everybody - client - sessions[observer_session % 2**64]
    return Reading(launcher, client, cpu_seconds, time.process_time())
