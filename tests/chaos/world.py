# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: ZooKeeper, the cloud, an SSH server, several launchers with the same providers."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulators.openstack import SimulatorClient
from tests.chaos.events import Events
from tests.chaos.links import Links
from tests.chaos.providers import FLOATING, STATIC, rich_provider, static_provider
from tests.chaos.skewed_launcher import write_offset
from tests.support.clouds import openstack_section
from tests.support.launcher import OUR_COMMAND, ROOT, LauncherProcess, launcher_command
from tests.support.launcher_config import Provider, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.process import ChildProcess
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble

PROVIDER = "cloud-one"
CHROOT = "/chaos"
TENANT = "limited"
#: How long a request may live that fails in the end.
REQUEST_SECONDS = 120.0
FULL_DISK = "full-disk"
#: Who asks for the parts of a request over several pools.
PARTS = "NodePool:mixed"
#: Labels whose nodes may come from another pool than the rest of their request.
MIXED = (STATIC, FLOATING)
#: A frozen launcher loses its session after it.
SESSION_SECONDS = 4.0


@dataclass(frozen=True)
class Limits:
    """What must never be exceeded; ``ram`` in MiB. ``tenant`` is a limit on the servers of `TENANT`."""

    servers: int = 14
    cores: int = 18
    ram: int = 30 * 1024
    tenant: int = 5

    @classmethod
    def of_servers(cls, servers: int) -> Limits:
        """The same for another number of servers: everything in proportion."""
        share = servers / cls.servers
        return cls(servers, round(cls.cores * share), round(cls.ram * share), round(cls.tenant * share))


def cloud_provider(number: int, limits: Limits, launch_timeout: int) -> SectionProvider:
    """The provider as one launcher has it: besides what all have, it offers a label of its own."""
    label = {"cloud-image": "debian", "dynamic-instance-properties": {"tenant": "{request.tenant_name}"}}
    flavors = {"small": "small", "medium": "medium", own_label(number): "small"}
    pool = {
        "name": "main",
        "networks": ["provider"],
        "max-servers": limits.servers,
        "max-cores": limits.cores,
        "max-ram": limits.ram,
        "labels": [{"name": name, "flavor-name": flavor, **label} for name, flavor in flavors.items()],
        "host-key-checking": False,
    }
    more = {"launch-timeout": launch_timeout, "launch-retries": 3, "port-cleanup-interval": 5, "pools": [pool]}
    return SectionProvider({**openstack_section(), "name": PROVIDER, **more})


def own_label(number: int) -> str:
    """The label that only one launcher offers."""
    return f"only-{number}"


class World(Events):
    """Starts and ends the processes, keeps what happened when.

    :param directory: logs, configurations and data go there.
    :param zookeepers: how many ZooKeeper servers; with more than one they are an ensemble.
    """

    #: Session timeout of the launchers.
    session_seconds = SESSION_SECONDS
    #: Memory of the largest node of the first cloud, in MiB: a server without a node that a hand made so may have it.
    largest_ram = 4096

    def __init__(self, directory: Path, seed: int, launchers: int, limits: Limits, zookeepers: int = 1) -> None:
        super().__init__()
        self.directory = directory
        self.limits = limits
        self.zookeeper: ZooKeeperServer | ZooKeeperEnsemble
        if zookeepers > 1:
            self.zookeeper = ZooKeeperEnsemble(directory / "zookeeper", zookeepers, links=True)
        else:
            self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        #: Not with another launcher: it says other things in its log, and has a protocol of its own.
        self.ours = launcher_command() == list(OUR_COMMAND)
        #: Are there requests over several pools?
        self.mixes = self.ours
        #: It answers for all servers and static hosts.
        self.sshd = SshServer(directory / "sshd")
        self.seed = seed
        self._simulator = ChildProcess(self.simulator_command(), directory / "cloud.log", cwd=ROOT)
        self.cloud: SimulatorClient
        self.launchers = [self._make_launcher(number) for number in range(launchers)]
        #: The way of each launcher to ZooKeeper and the cloud.
        self.links: list[Links] = []
        self.znodes: PoolZnodes

    def simulator_command(self) -> list[str]:
        """Starts the cloud; the last line that it writes is its address."""
        knobs = '{"boot_seconds": [0.3, 1.5], "delete_seconds": [0.1, 0.5], "latency_seconds": [0.0, 0.05]}'
        file = str(self.directory / "clouds.yaml")
        options = ["--clouds-yaml", file, "--seed", str(self.seed), "--knobs", knobs]
        return [sys.executable, "-m", "simulators.openstack", *options]

    def _make_launcher(self, number: int) -> LauncherProcess:
        environment = self.launcher_environment(number)
        config, log = self.directory / f"nodepool{number}.yaml", self.directory / f"launcher{number}.log"
        command = launcher_command()
        if self.ours:
            self.set_clock(number, 0.0)
            command = [sys.executable, "-m", "tests.chaos.skewed_launcher", str(self._clock_file(number))]
        return LauncherProcess(config, log, command, debug=True, environment=environment)

    def _clouds_file(self, number: int) -> Path:
        return self.directory / f"clouds{number}.yaml"

    def _clock_file(self, number: int) -> Path:
        return self.directory / f"clock{number}"

    def set_clock(self, number: int, seconds: float) -> None:
        """Makes the wall clock of a launcher wrong. Another launcher than ours does not care."""
        write_offset(self._clock_file(number), seconds)

    def start(self) -> None:
        """Blocks until everything serves. :raises AssertionError: something does not."""
        self.zookeeper.start()
        self.sshd.start()
        root = PoolZnodes(self.zookeeper.plain_hosts())
        root.start()
        root.kazoo.ensure_path(CHROOT)
        root.stop()
        self.znodes = PoolZnodes(self.zookeeper.plain_hosts(CHROOT))
        self.znodes.start()
        self._simulator.start()
        url = wait_for("the cloud says where it is", lambda: self._simulator.log_text().rpartition("\n")[0])
        self.cloud = self.make_cloud(url.splitlines()[-1])
        for number, launcher in enumerate(self.launchers):
            self._connect(number)
            self.configure(number)
            launcher.start()
        self.wait_registered()
        self.begin()

    def make_cloud(self, url: str) -> SimulatorClient:
        """Steers the cloud at this address."""
        return SimulatorClient(url)

    def _connect(self, number: int) -> None:
        links = Links(f"{self.seed} {number}", self.zookeeper.tls_ports, self.cloud.url)
        links.start()
        self.links.append(links)
        self.write_cloud_file(number, links)

    def write_cloud_file(self, number: int, links: Links) -> None:
        """Tells a launcher's library where its cloud is."""
        links.write_clouds(self.directory / "clouds.yaml", self._clouds_file(number))

    def configure(self, number: int, launch_timeout: int = 15) -> None:
        """Writes the configuration of a launcher (anew). Another ``launch-timeout`` makes it replace its provider."""
        tenants = [{"tenant-name": TENANT, "max-servers": self.limits.tenant}]
        write_config(
            self.launchers[number].config_path,
            self.zookeeper,
            CHROOT,
            self.providers_of(number, launch_timeout),
            session_seconds=self.session_seconds,
            zookeeper_ports=self.zookeeper_ports_of(number),
            labels={label: {"mixed-nodesets": True} for label in MIXED} if self.mixes else None,
            extra={"tenant-resource-limits": tenants},
        )

    def zookeeper_ports_of(self, number: int) -> Sequence[int]:
        """Where a launcher finds ZooKeeper; empty: directly."""
        return self.links[number].zookeeper_ports

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        """What a launcher has in its configuration: here all have the same, but for one label."""
        cloud = cloud_provider(number, self.limits, launch_timeout)
        rich = rich_provider(self.sshd.port, launch_timeout)
        return [cloud, rich, static_provider(self.sshd.port, self.sshd.host_keys)]

    def wait_registered(self, seconds: float = 120.0) -> None:
        """Blocks until all launchers run and serve."""

        def registered() -> bool:
            for number, launcher in enumerate(self.launchers):
                assert launcher.running, f"launcher {number} ended: {launcher.log_text()[-2000:]}"
                assert self.serves(number), f"launcher {number} does not"
            return True

        wait_for("all launchers are registered", registered, seconds)

    def serves(self, number: int) -> bool:
        """Has this launcher registered the pool with its own label?"""
        return number in self.registered()

    def registered(self) -> dict[int, str]:
        """Numbers of the launchers whose pool with their own label is registered, and the id of that pool."""
        pools = [pool for pool in self.znodes.pools() if pool.get("state") == "running"]
        return {
            number: str(pool.get("id"))
            for number in range(len(self.launchers))
            for pool in pools
            if own_label(number) in pool.get("supported_labels", ())
        }

    def launcher_environment(self, number: int) -> dict[str, str]:
        """Tells a launcher where its cloud is."""
        return {"OS_CLIENT_CONFIG_FILE": str(self._clouds_file(number))}

    def stop(self) -> None:
        """Ends everything, in any state."""
        self._simulator.send_signal(signal.SIGCONT)
        for launcher in self.launchers:
            if launcher.running:
                launcher.stop(seconds=30)
        for links in self.links:
            links.stop()
        self._simulator.stop()
        self.sshd.stop()
        if hasattr(self, "znodes"):
            self.znodes.stop()
        self.zookeeper.stop()

    def signal_cloud(self, number: int) -> None:
        """Sends a signal to the cloud's process."""
        self._simulator.send_signal(number)

    def disk_was_full(self, when: float) -> bool:
        """Was a launcher's disk full at some time of a request that failed then?"""
        return any(FULL_DISK in text for at, text in self.events if when - REQUEST_SECONDS < at < when)

    def quota_was_cut(self, when: float) -> bool:
        """Was the cloud's quota less at some time of a request that failed then?"""
        return any(
            text.startswith("fault quota-change") for at, text in self.events if when - REQUEST_SECONDS < at < when
        )

    def transaction_logs(self) -> list[Path]:
        """Where ZooKeeper has its record of all writes: a directory for each server."""
        return sorted(self.zookeeper.directory.glob("**/version-2"))

    def contents(self) -> Mapping[str, int]:
        """What is in the cloud and ought to go."""
        contents = self.cloud.state()["contents"]
        return {kind: contents[kind] for kind in ("servers", "ports", "floating_ips", "volumes")}
