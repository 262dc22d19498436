# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper and the interpreter cost here and now, without any launcher: what limits are made of."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.suite.statistics import median
from tests.support.plain_kazoo import PlainKazoo
from tests.support.zookeeper import ZooKeeperServer

#: About the size of a node's record.
RECORD = b"x" * 1000
PATH = "/cost-of-a-write"
ONE_BY_ONE = 300
PIPELINED = 3000
INTERPRETER_RUNS = 5


@dataclass(frozen=True)
class Costs:
    """Of one client with TLS and plain Kazoo.

    :param write_ms: one write, from call to answer, when the next waits for it; median.
    :param writes_per_second: writes that do not wait for each other; ``reads_per_second`` likewise.
    :param kazoo_seconds: a new interpreter that imports Kazoo and ends.
    """

    write_ms: float
    writes_per_second: float
    reads_per_second: float
    kazoo_seconds: float

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
    return Costs(write_ms, writes, reads, interpreter)


def _seconds(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def _rate(send: Callable[[], Any]) -> float:
    start = time.monotonic()
    for answer in [send() for _ in range(PIPELINED)]:
        answer.get(60)
    return PIPELINED / (time.monotonic() - start)
