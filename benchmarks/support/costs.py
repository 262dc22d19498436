# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper and the interpreter cost here and now, without any launcher: what limits are made of."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.suite.statistics import median
from benchmarks.support.load import SUBMITTERS
from tests.support.plain_kazoo import PlainKazoo
from tests.support.pool_znodes import PoolZnodes
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_client import ZuulClient

#: About the size of a node's record.
RECORD = b"x" * 1000
PATH = "/cost-of-a-write"
ONE_BY_ONE = 300
PIPELINED = 3000
INTERPRETER_RUNS = 5
REQUESTS_CHROOT = "/cost-of-a-request"
REQUESTS = 300


@dataclass(frozen=True)
class Costs:
    """Of one client with TLS and plain Kazoo, but for the requests: those are the load's, Zuul's own code.

    :param write_ms: one write, from call to answer, when the next waits for it; median.
    :param writes_per_second: writes that do not wait for each other; ``reads_per_second`` likewise.
    :param kazoo_seconds: a new interpreter that imports Kazoo and ends.
    :param requests_per_second: that the load submits when nobody serves them.
    """

    write_ms: float
    writes_per_second: float
    reads_per_second: float
    kazoo_seconds: float
    requests_per_second: float

    def as_dict(self) -> dict[str, float]:
        return {key: round(value, 3) for key, value in asdict(self).items()}


def measure_costs(zookeeper: ZooKeeperServer) -> Costs:
    """Blocks for a few seconds."""
    certificates = zookeeper.certificates
    kazoo = PlainKazoo(
        hosts=zookeeper.tls_hosts(),
        timeout=20.0,
        use_ssl=True,
        certfile=str(certificates.client_cert),
        keyfile=str(certificates.client_key),
        ca=str(certificates.ca),
    )
    kazoo.start(20)
    try:
        kazoo.create(PATH, RECORD)
        _rate(lambda: kazoo.set_async(PATH, RECORD))  # Java compiles
        write_ms = 1000 * median([_seconds(lambda: kazoo.set(PATH, RECORD)) for _ in range(ONE_BY_ONE)])
        writes = _rate(lambda: kazoo.set_async(PATH, RECORD))
        reads = _rate(lambda: kazoo.get_async(PATH))
        kazoo.delete(PATH)
    finally:
        kazoo.stop()
        kazoo.close()
    command = [sys.executable, "-c", "import kazoo.client"]
    interpreter = median([_seconds(lambda: subprocess.run(command, check=True)) for _ in range(INTERPRETER_RUNS)])
    return Costs(write_ms, writes, reads, interpreter, _submit(zookeeper))


def _submit(zookeeper: ZooKeeperServer) -> float:
    """Requests a second; those of the first round only make Java compile."""
    znodes = PoolZnodes(zookeeper.plain_hosts())
    client = ZuulClient(zookeeper.tls_hosts(REQUESTS_CHROOT), zookeeper.certificates, node_cache=False)
    znodes.start()
    try:
        znodes.kazoo.ensure_path(REQUESTS_CHROOT)
        client.start()
        for _ in range(2):
            start = time.monotonic()
            with ThreadPoolExecutor(SUBMITTERS) as submitters:
                requests = list(submitters.map(lambda _: client.submit(["label"]), range(REQUESTS)))
            seconds = time.monotonic() - start
            for request in requests:
                client.cancel(request)
    finally:
        client.stop()
        znodes.kazoo.delete(REQUESTS_CHROOT, recursive=True)
        znodes.stop()
    return REQUESTS / seconds


def _seconds(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def _rate(send: Callable[[], Any]) -> float:
    start = time.monotonic()
    for answer in [send() for _ in range(PIPELINED)]:
        answer.get(60)
    return PIPELINED / (time.monotonic() - start)
