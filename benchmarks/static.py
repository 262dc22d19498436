# SPDX-License-Identifier: Apache-2.0
"""Static hosts, the Zuul client as the load, our launcher and the released one in one run.

    python -m benchmarks.static --legacy VENV [--json FILE]

One ZooKeeper with fsync and TLS; one candidate at a time; each has 100 static hosts without host key checking,
so that Zuul, ZooKeeper and the launcher are what is measured. With --host-keys the hosts answer with a real
sshd and every returned host is scanned again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.support.candidates import FLOOR, OURS, Candidate, legacy
from benchmarks.support.report import table, write_json
from benchmarks.support.scenarios import COLUMNS, LABEL, NOTE, Bench, Result
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_client import ZuulClient

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ("single", "burst", "steady")


def main() -> None:
    arguments = parse_arguments()
    candidates = [FLOOR] if arguments.floor else []
    candidates += [] if arguments.no_legacy else [legacy(arguments.legacy)]
    candidates += [] if arguments.no_ours else [OURS]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="nodepool-bench-") as name:
        directory = Path(name)
        zookeeper, sshd = ZooKeeperServer(directory / "zookeeper", fsync=True), SshServer(directory / "sshd")
        zookeeper.start()
        try:
            if arguments.host_keys:
                sshd.start()
            for candidate in candidates:
                results += measure(candidate, directory, zookeeper, sshd.port or 22, arguments)
        finally:
            sshd.stop()
            zookeeper.stop()
    print(table(results, "legacy", COLUMNS, NOTE))
    write_json(arguments.json, results, {key: str(value) for key, value in vars(arguments).items() if key != "json"})
    print(f"\nwritten: {arguments.json}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--legacy", metavar="VENV", help="virtualenv with nodepool 11.0.0 (or NODEPOOL_LEGACY_VENV)")
    parser.add_argument("--no-legacy", action="store_true", help="measure only ours")
    parser.add_argument("--no-ours", action="store_true", help="measure only the released one")
    parser.add_argument("--floor", action="store_true", help="also a stand-in that shows what the load alone costs")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: all")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--single", type=int, default=40, metavar="N", help="requests one by one")
    parser.add_argument("--burst", type=int, default=80, metavar="N", help="requests at once, at most --hosts")
    parser.add_argument("--steady", type=int, default=2000, metavar="N", help="requests at once, used and returned")
    parser.add_argument("--host-keys", action="store_true", help="real sshd behind every host, keys are checked")
    parser.add_argument("--node-cache", action="store_true", help="Zuul's node cache on as well")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "static.json")
    return parser.parse_args()


def measure(
    candidate: Candidate, directory: Path, zookeeper: ZooKeeperServer, port: int, arguments: argparse.Namespace
) -> list[Result]:
    """Starts one candidate in a chroot of its own, runs the scenarios and ends it."""
    chroot = f"/{candidate.name}"
    root = PoolZnodes(zookeeper.plain_hosts())
    root.start()
    root.kazoo.ensure_path(chroot)
    root.stop()
    znodes = PoolZnodes(zookeeper.plain_hosts(chroot))
    client = ZuulClient(zookeeper.tls_hosts(chroot), zookeeper.certificates, node_cache=arguments.node_cache)
    place = Path(tempfile.mkdtemp(prefix=candidate.name, dir=directory))
    workplace = Workplace(place, zookeeper, chroot, znodes)
    hosts = static_hosts(arguments.hosts, [LABEL], port=port, check=arguments.host_keys)
    provider = StaticProvider(hosts)
    znodes.start()
    client.start()
    try:
        launcher = workplace.launch(provider, command=candidate.command, debug=False)
        bench = Bench(candidate.name, workplace, launcher, provider, client)
        bench.warm_up()
        results = []
        for scenario in arguments.scenario or SCENARIOS:
            results.append(getattr(bench, scenario)(getattr(arguments, scenario)))
            print(f"{candidate.name}: {results[-1]}", flush=True)
        return results
    finally:
        client.stop()
        workplace.stop()
        znodes.stop()


if __name__ == "__main__":
    main()
