# SPDX-License-Identifier: Apache-2.0
"""benchmarks.support.transaction_log: who wrote what, against a real ZooKeeper."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from kazoo.exceptions import NodeExistsError

from benchmarks.support.transaction_log import Work, count_work, read
from tests.support.pool_znodes import REQUEST_LOCKS, REQUESTS, PoolZnodes
from tests.support.zookeeper import ZooKeeperServer


def test_work_of_two_sessions(zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> None:
    """Failed writes, extra lockers and declines of launchers; the client's writes are not counted."""
    launcher = PoolZnodes(zookeeper.plain_hosts(chroot))
    launcher.start()
    try:
        request_id = znodes.submit(["small"])
        kazoo, lock = launcher.kazoo, f"{REQUEST_LOCKS}/{request_id}"
        kazoo.ensure_path(lock)
        first = read_zxid(zookeeper)
        for name in ("one", "two"):
            kazoo.create(f"{lock}/{name}__lock__", b"", ephemeral=True, sequence=True)
        with contextlib.suppress(NodeExistsError):
            kazoo.create(lock, b"")
        failing = kazoo.transaction()
        failing.create(lock, b"")
        failing.commit()
        kazoo.set(f"{REQUESTS}/{request_id}", json.dumps({"declined_by": ["a", "b"]}).encode())
        znodes.submit(["small"])
        writes = list(read(Path(zookeeper.directory) / "data", first))
        # Other tests may use the server as well.
        mine = [write for write in writes if write.session % 2**64 == kazoo.client_id[0] % 2**64]
        assert count_work(mine, []) == Work(writes=5, failed=2, extra_lockers=1, declines=2)
        assert count_work(mine, [kazoo.client_id[0]]) == Work(0, 0, 0, 0)
        assert any(write.session % 2**64 == znodes.kazoo.client_id[0] % 2**64 for write in writes)
    finally:
        launcher.stop()


def read_zxid(zookeeper: ZooKeeperServer) -> int:
    (line,) = [line for line in zookeeper.command("srvr").splitlines() if line.startswith("Zxid:")]
    return int(line.split()[1], 16)
