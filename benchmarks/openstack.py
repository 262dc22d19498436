# SPDX-License-Identifier: Apache-2.0
"""Nodes of a simulated OpenStack, the Zuul client as the load, our launcher and the released one in one run.

    python -m benchmarks.openstack --legacy VENV [--json FILE]

One ZooKeeper with fsync and TLS, one simulator in a process of its own; one candidate at a time. The cloud boots a
server in 1-3 s and deletes it in 0.5-1.5 s. Each case has its own settings of cloud and provider:

open                 no limits: one node at a time, and many at once
scan                 the same with host keys, from a real sshd on every address
max-servers          20 servers by configuration, jobs hold nodes for 5 s, 200 and 1000 requests wait
fast-cloud           the same, and the cloud boots and deletes a server in 0.1 s: what is noticed late costs the most
cloud-quota          the same by the quota that the cloud reports
unreported-quota     the same; the cloud refuses what is too much, but its limits do not say so
memory               1000 nodes in use and 5000 requests waiting
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.model import RELEASED
from benchmarks.support.candidates import OURS, Candidate, legacy
from benchmarks.support.cloud_scenarios import COLUMNS, NOTE, CloudBench, CloudResult
from benchmarks.support.report import table, write_json
from benchmarks.support.simulated_cloud import OpenStackProvider, simulated_cloud
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_client import ZuulClient

ROOT = Path(__file__).resolve().parents[1]
BOOT_SECONDS, DELETE_SECONDS = (1.0, 3.0), (0.5, 1.5)
FAST_SECONDS = (0.1, 0.1)


@dataclass(frozen=True)
class Case:
    """Settings of cloud and provider, and what is measured with them."""

    name: str
    scenarios: tuple[str, ...]
    #: Names of the cloud's quotas that allow so few.
    quota: tuple[str, ...] = ()
    limited: bool = False
    scan: bool = False
    #: Seconds that the cloud takes to boot and to delete a server.
    boot: tuple[float, float] = BOOT_SECONDS
    delete: tuple[float, float] = DELETE_SECONDS


CASES = (
    Case("open", ("single", "burst")),
    Case("scan", ("single", "burst"), scan=True),
    Case("max-servers", ("at_quota",), limited=True),
    Case("fast-cloud", ("at_quota",), limited=True, boot=FAST_SECONDS, delete=FAST_SECONDS),
    Case("cloud-quota", ("at_quota",), quota=("instances",)),
    # Neutron's limits are not among those that Nova tells.
    Case("unreported-quota", ("at_quota",), quota=("ports",)),
    Case("memory", ("memory",), limited=True),
)


def main() -> None:
    arguments = parse_arguments()
    candidates = [] if arguments.no_legacy else [legacy(arguments.legacy)]
    candidates += [] if arguments.no_ours else [OURS]
    results: list[CloudResult] = []
    with tempfile.TemporaryDirectory(prefix="nodepool-bench-") as name:
        directory = Path(name)
        zookeeper, sshd = ZooKeeperServer(directory / "zookeeper", fsync=True), SshServer(directory / "sshd")
        zookeeper.start()
        sshd.start()
        try:
            for case in [case for case in CASES if not arguments.case or case.name in arguments.case]:
                for candidate in candidates:
                    results += Measurement(candidate, case, directory, zookeeper, sshd.port, arguments).run()
        finally:
            sshd.stop()
            zookeeper.stop()
    print(table(results, RELEASED, COLUMNS, NOTE))
    write_json(arguments.json, results, {key: str(value) for key, value in vars(arguments).items() if key != "json"})
    print(f"\nwritten: {arguments.json}")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--legacy", metavar="VENV", help="virtualenv with nodepool 11.0.0 (or NODEPOOL_LEGACY_VENV)")
    parser.add_argument("--no-legacy", action="store_true", help="measure only ours")
    parser.add_argument("--no-ours", action="store_true", help="measure only the released one")
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append", help="default: all")
    parser.add_argument("--single", type=int, default=15, metavar="N", help="nodes one by one")
    parser.add_argument("--burst", type=int, default=300, metavar="N", help="nodes at once")
    parser.add_argument("--servers", type=int, default=20, metavar="N", help="servers that the quota allows")
    parser.add_argument("--waiting", type=int, nargs="+", default=[200, 1000], metavar="N", help="requests at quota")
    parser.add_argument("--hold", type=float, default=5.0, metavar="SECONDS", help="how long a job takes")
    parser.add_argument("--window", type=float, default=120.0, metavar="SECONDS", help="how long jobs are counted")
    parser.add_argument("--live", type=int, default=1000, metavar="N", help="nodes in use when memory is measured")
    parser.add_argument("--backlog", type=int, default=5000, metavar="N", help="requests that wait then")
    parser.add_argument("--launchers", type=int, default=1, metavar="N", help="with the same configuration")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the launchers' logs there")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "openstack.json")
    return parser.parse_args(arguments)


class Measurement:
    """One candidate in one case, in a chroot and with a cloud of its own."""

    def __init__(
        self,
        candidate: Candidate,
        case: Case,
        directory: Path,
        zookeeper: ZooKeeperServer,
        ssh_port: int,
        arguments: argparse.Namespace,
    ) -> None:
        self._candidate = candidate
        self._case = case
        self._directory = Path(tempfile.mkdtemp(prefix=f"{candidate.name}-{case.name}-", dir=directory))
        self._zookeeper = zookeeper
        self._ssh_port = ssh_port
        self._arguments = arguments

    def run(self) -> list[CloudResult]:
        """Starts what is needed, measures, ends everything."""
        chroot = f"/{self._candidate.name}-{self._case.name}"
        zookeeper = self._zookeeper
        root = PoolZnodes(zookeeper.plain_hosts())
        root.start()
        root.kazoo.ensure_path(chroot)
        root.stop()
        znodes = PoolZnodes(zookeeper.plain_hosts(chroot))
        client = ZuulClient(zookeeper.tls_hosts(chroot), zookeeper.certificates, node_cache=False)
        workplace = Workplace(self._directory, zookeeper, chroot, znodes)
        knobs: dict[str, Any] = {"boot_seconds": self._case.boot, "delete_seconds": self._case.delete}
        with simulated_cloud(self._directory, {**knobs, "quota": self._quota()}) as cloud:
            znodes.start()
            client.start()
            try:
                for _ in range(self._arguments.launchers):
                    workplace.launch([self._provider()], command=self._candidate.command, debug=False)
                suffix = "" if self._case.name == "open" else f", {self._case.name}"
                return self._measure(CloudBench(self._candidate.name, suffix, workplace, client, cloud))
            finally:
                client.stop()
                workplace.stop()
                znodes.stop()
                self._keep_logs()

    def _quota(self) -> dict[str, int]:
        return dict.fromkeys(self._case.quota, self._arguments.servers)

    def _provider(self) -> OpenStackProvider:
        limit = self._arguments.live if self._case.name == "memory" else self._arguments.servers
        return OpenStackProvider(limit if self._case.limited else None, self._ssh_port if self._case.scan else None)

    def _measure(self, bench: CloudBench) -> list[CloudResult]:
        arguments = self._arguments
        runs = {
            "single": lambda: [bench.single(arguments.single)],
            "burst": lambda: [bench.burst(arguments.burst)],
            "at_quota": lambda: [
                bench.at_quota(waiting, arguments.servers, arguments.hold, arguments.window)
                for waiting in arguments.waiting
            ],
            "memory": lambda: [bench.memory(arguments.live, arguments.backlog)],
        }
        bench.warm_up()
        results: list[CloudResult] = []
        for scenario in self._case.scenarios:
            for result in runs[scenario]():
                print(result, file=sys.stderr, flush=True)
                results.append(result)
        return results

    def _keep_logs(self) -> None:
        if self._arguments.keep is None:
            return
        self._arguments.keep.mkdir(parents=True, exist_ok=True)
        for log in self._directory.glob("*.log"):
            shutil.copy(log, self._arguments.keep / f"{self._directory.name}-{log.name}")


if __name__ == "__main__":
    main()
