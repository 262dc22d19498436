# SPDX-License-Identifier: Apache-2.0
"""A Zuul client in a process of its own, to be killed: with requests waiting, requests not taken, and nodes in use."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from tests.chaos.world import CHROOT, SESSION_SECONDS, World
from tests.support.certificates import Certificates
from tests.support.launcher import ROOT
from tests.support.process import ChildProcess

REQUESTS = 4


class DoomedClient(ChildProcess):
    """Asks for nodes, takes some of them, and waits for its end."""

    def __init__(self, world: World) -> None:
        number = sum("fault client-kill" in text for _, text in world.events)
        files = world.zookeeper.certificates
        paths = [str(path) for path in (files.ca, files.client_cert, files.client_key, files.keystore)]
        command = [sys.executable, "-m", "tests.chaos.doomed_client", world.zookeeper.tls_hosts(CHROOT), *paths]
        super().__init__(command, world.directory / f"doomed-client-{number}.log", cwd=ROOT)

    def requestor(self) -> str:
        """What its requests say; empty when it did not come so far."""
        return self.log_text().partition("\n")[0].partition("requestor ")[2]


def main() -> int:
    """In the child: says what it holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts")
    parser.add_argument("certificates", type=Path, nargs=4)
    options = parser.parse_args()
    from tests.support.zuul_client import ZuulClient

    client = ZuulClient(options.hosts, Certificates(*options.certificates), session_seconds=SESSION_SECONDS)
    print("requestor", client.system_id, flush=True)
    client.start()
    requests = [client.submit(["small"]) for _ in range(REQUESTS)]
    print("asked for", *(request.id for request in requests), flush=True)
    for request in requests[: REQUESTS // 2]:
        completed = client.wait(request)
        completed.nodeset = request.nodeset
        nodeset = client.accept(completed)
        client.use(nodeset)
        print("uses", *(node.id for node in nodeset.getNodes()), flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
