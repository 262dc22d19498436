# SPDX-License-Identifier: Apache-2.0
"""The same demand on real launchers with a real ZooKeeper, to check what the simulation says."""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.simulate.fleet import Cost, Demand
from nodepool.driver.registry import PATH_VARIABLE
from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import write_config
from tests.support.machine_driver import DIRECTORY
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Of one connection, in the answer to ``cons``.
_CONNECTION = re.compile(r"recved=(\d+),.*?sid=0x([0-9a-f]+)")


class CloudProvider:
    """A provider whose cloud is in the memory of the launcher."""

    slots = 0

    def __init__(self, number: int, demand: Demand) -> None:
        self.name = f"p{number}"
        self.labels = [f"label-{number}"]
        self._demand = demand

    def as_config(self) -> dict[str, Any]:
        pool = {
            "name": "main",
            "max-servers": self._demand.max_servers,
            "labels": [{"name": self.labels[0]}],
        }
        return {
            "name": self.name,
            "driver": "machines",
            "cloud": self.name,
            "pools": [pool],
            "boot-seconds": self._demand.boot_seconds,
        }


def measure(demand: Demand) -> Cost:
    """Run it. Blocks for the time that the demand takes. Raises AssertionError: something did not answer."""
    with tempfile.TemporaryDirectory(prefix="nodepool-simulate-") as name:
        directory = Path(name)
        (directory / "zookeeper").mkdir()
        zookeeper = ZooKeeperServer(directory / "zookeeper")
        zookeeper.start()
        znodes = PoolZnodes(zookeeper.plain_hosts())
        launchers: list[LauncherProcess] = []
        try:
            znodes.start()
            config = directory / "nodepool.yaml"
            write_config(config, zookeeper, "", [CloudProvider(number, demand) for number in range(demand.providers)])
            for number in range(demand.launchers):
                environment = {PATH_VARIABLE: str(DIRECTORY)}
                launchers.append(LauncherProcess(config, directory / f"launcher{number}.log", environment=environment))
                launchers[-1].start()
            expected = demand.launchers * demand.providers
            wait_for("all pools are registered", lambda: len(znodes.pools()) == expected, 120.0)
            return _serve(demand, zookeeper, znodes, launchers)
        finally:
            znodes.stop()
            for launcher in launchers:
                launcher.stop()
            zookeeper.stop()


def _serve(demand: Demand, zookeeper: ZooKeeperServer, znodes: PoolZnodes, launchers: list[LauncherProcess]) -> Cost:
    own = f"{znodes.kazoo.client_id[0]:x}"
    # Starts cost something, too.
    time.sleep(10.0)
    cpu, packets = _cpu(launchers), _packets(zookeeper, own)
    waiting: deque[tuple[str, float]] = deque()
    held: deque[tuple[str, float]] = deque()
    waits: list[float] = []
    asked, begin = 0, time.monotonic()
    while asked < demand.requests or waiting or held:
        now = time.monotonic()
        while asked < demand.requests and asked <= (now - begin) * demand.rate:
            waiting.append((znodes.submit([f"label-{asked % demand.providers}"]), now))
            asked += 1
        while waiting and znodes.request_state(waiting[0][0]) == "fulfilled":
            request_id, since = waiting.popleft()
            held.append((request_id, now + demand.hold_seconds))
            waits.append(now - since)
        while held and held[0][1] <= now:
            znodes.use_and_return(held.popleft()[0])
        time.sleep(0.05)
    wait_for("all nodes are deleted", lambda: not znodes.children("/nodepool/nodes"), 120.0)
    used = _cpu(launchers) - cpu
    whole, client = (after - before for after, before in zip(_packets(zookeeper, own), packets, strict=True))
    count = demand.requests
    return Cost(
        demand.launchers,
        demand.providers,
        count,
        used / count,
        (whole - client) / count,
        client / count,
        0.0,
        0.0,
        statistics.median(waits),
    )


def _cpu(launchers: list[LauncherProcess]) -> float:
    return sum(launcher.cpu_seconds() for launcher in launchers)


def _packets(zookeeper: ZooKeeperServer, session: str) -> tuple[int, int]:
    """What the server has received in all, and from this session, which has no TLS."""
    own = {found: int(count) for count, found in _CONNECTION.findall(zookeeper.command("cons"))}
    return zookeeper.counters()["zk_packets_received"], own[session]
