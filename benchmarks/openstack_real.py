# SPDX-License-Identifier: Apache-2.0
"""Nodes of a real OpenStack control plane with host keys, beside what its bare API needs for the same servers.

    tools/functional-openstack --exec python -m benchmarks.openstack_real --legacy VENV [--json FILE]

or, for the cloud that OS_CLOUD names in clouds.yaml, without the first two words. In each round the bare API and the
launchers take turns, because a control plane is not equally fast all the time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.bare_api import DEADLINE_SECONDS, POLL_SECONDS, BareApi
from benchmarks.support.candidates import OURS, Candidate, legacy
from benchmarks.support.load import Load
from benchmarks.support.report import Column, table, write_json
from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import OpenStackProvider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_client import ZuulClient

ROOT = Path(__file__).resolve().parents[1]
API = "bare API"
COLUMNS = (
    Column("p50 s", ("median",)),
    Column("best s", ("best",)),
    Column("worst s", ("worst",)),
    Column("gone s", ("gone",)),
    Column("CPU ms", ("cpu_ms",), None),
)
NOTE = """\
Seconds from the (first) request to the (last) node being Zuul's, host keys scanned; of the bare API, from the first
creation to the last server being ACTIVE. Gone: from the last return or deletion on, until the cloud lists no server,
median. CPU: of the launcher, per node."""


@dataclass
class Times:
    """What was measured of one candidate in one scenario; seconds, one value per round."""

    candidate: str
    scenario: str
    served: list[float] = field(default_factory=list)
    emptied: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def median(self) -> float:
        return round(statistics.median(self.served), 2)

    @property
    def best(self) -> float:
        return round(min(self.served), 2)

    @property
    def worst(self) -> float:
        return round(max(self.served), 2)

    @property
    def gone(self) -> float:
        return round(statistics.median(self.emptied), 2)

    @property
    def cpu_ms(self) -> float | None:
        return round(1000 * statistics.median(self.cpu), 1) if self.cpu else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "gone": self.gone, "cpu_ms": self.cpu_ms}


class Bench:
    """Takes candidates through rounds.

    :param directory: for logs and configuration files.
    """

    def __init__(self, cloud: RealCloud, zookeeper: ZooKeeperServer, directory: Path, single: int, burst: int) -> None:
        self._cloud = cloud
        self._zookeeper = zookeeper
        self._directory = directory
        self._single = single
        self._burst = burst
        self._times: dict[tuple[str, str], Times] = {}
        self._chroots = 0

    @property
    def results(self) -> list[Times]:
        return [times for _, times in sorted(self._times.items(), key=lambda item: item[0][1], reverse=True)]

    def api(self) -> None:
        """One round of the bare API."""
        api = BareApi(self._cloud)
        for count, repeat in ((1, self._single), (self._burst, 1)):
            for _ in range(repeat):
                ids, seconds = api.create(count)
                self._note(API, count, seconds, api.delete(ids))

    def launcher(self, candidate: Candidate) -> None:
        """One round of a launcher, which is started for it. Its first node is not measured: it warms up."""
        chroot = self._new_chroot()
        znodes = PoolZnodes(self._zookeeper.plain_hosts(chroot))
        client = ZuulClient(self._zookeeper.tls_hosts(chroot), self._zookeeper.certificates)
        place = Path(tempfile.mkdtemp(prefix=candidate.name, dir=self._directory))
        workplace = Workplace(place, self._zookeeper, chroot, znodes)
        znodes.start()
        client.start()
        try:
            process = workplace.launch([OpenStackProvider(self._cloud)], command=candidate.command, debug=False)
            load = Load(client)
            self._serve(load, znodes, 1)
            for count, repeat in ((1, self._single), (self._burst, 1)):
                for _ in range(repeat):
                    before = process.cpu_seconds()
                    served, gone, failed = self._serve(load, znodes, count)
                    self._note(candidate.name, count, served, gone, (process.cpu_seconds() - before) / count, failed)
        finally:
            client.stop()
            workplace.stop()
            znodes.stop()

    def _serve(self, load: Load, znodes: PoolZnodes, count: int) -> tuple[float, float, int]:
        """Seconds until all are served, seconds from then until all are gone, requests that failed."""
        fulfilled: list[Any] = []
        run = load.run(count, "small", fulfilled.append)
        for request in fulfilled:
            load.use_and_return(request)
        gone = self._until_empty()
        wait_for("nothing is left in ZooKeeper", lambda: not znodes.nodes(), 120)
        return run.last_fulfilled - run.start, gone, run.failed

    def _until_empty(self) -> float:
        """Seconds until the cloud lists no server; looks as often as the bare API does."""
        start = time.monotonic()
        while list(self._cloud.connection.compute.servers(details=False)):
            if time.monotonic() - start > DEADLINE_SECONDS:
                raise RuntimeError(f"servers are still there after {DEADLINE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - start

    def _new_chroot(self) -> str:
        self._chroots += 1
        chroot = f"/round{self._chroots}"
        root = PoolZnodes(self._zookeeper.plain_hosts())
        root.start()
        root.kazoo.ensure_path(chroot)
        root.stop()
        return chroot

    def _note(
        self, candidate: str, count: int, served: float, gone: float, cpu: float | None = None, failed: int = 0
    ) -> None:
        scenario = "one node" if count == 1 else f"{count} at once"
        times = self._times.setdefault((candidate, scenario), Times(candidate, scenario))
        times.served.append(round(served, 3))
        times.emptied.append(round(gone, 3))
        times.failed += failed
        if cpu is not None:
            times.cpu.append(round(cpu, 4))
        print(f"{candidate}, {scenario}: {served:.1f} s, gone after {gone:.1f} s", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--legacy", metavar="VENV", help="virtualenv with nodepool 11.0.0 (or NODEPOOL_LEGACY_VENV)")
    parser.add_argument("--no-legacy", action="store_true", help="measure only ours")
    parser.add_argument("--no-ours", action="store_true", help="measure only the released one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--single", type=int, default=5, metavar="N", help="nodes one by one, per round")
    parser.add_argument("--burst", type=int, default=20, metavar="N", help="nodes at once")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "openstack-real.json")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if not os.environ.get("OS_CLOUD"):
        raise SystemExit("OS_CLOUD names no cloud; tools/functional-openstack --exec starts one")
    candidates = [] if arguments.no_legacy else [legacy(arguments.legacy)]
    candidates += [] if arguments.no_ours else [OURS]
    cloud = RealCloud(os.environ["OS_CLOUD"])
    with tempfile.TemporaryDirectory(prefix="nodepool-bench-") as name:
        zookeeper = ZooKeeperServer(Path(name) / "zookeeper", fsync=True)
        zookeeper.start()
        bench = Bench(cloud, zookeeper, Path(name), arguments.single, arguments.burst)
        try:
            for _ in range(arguments.rounds):
                bench.api()
                for candidate in candidates:
                    bench.launcher(candidate)
        finally:
            zookeeper.stop()
            cloud.close()
    print(table(bench.results, API, COLUMNS, NOTE))
    settings: dict[str, object] = {key: str(value) for key, value in vars(arguments).items() if key != "json"}
    write_json(arguments.json, bench.results, settings)
    print(f"\nwritten: {arguments.json}")


if __name__ == "__main__":
    main()
