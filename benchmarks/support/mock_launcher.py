# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a launcher that does the least possible: what a client costs when its launcher is free.

It marks a ready node and fulfils a request in one transaction, and replaces a used node in another. It takes
no locks, knows one label and one client, and polls. For benchmarks only.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from typing import Any

import yaml
from kazoo.client import KazooClient

POLL_SECONDS = 0.01
NODES, REQUESTS = "/nodepool/nodes", "/nodepool/requests"
POOL = "/nodepool/components/pool/mock"


class MockLauncher:
    """Serves requests for one node from the hosts of a static configuration."""

    def __init__(self, config: dict[str, Any]) -> None:
        server, tls = config["zookeeper-servers"][0], config["zookeeper-tls"]
        self.kazoo = KazooClient(
            hosts=f"{server['host']}:{server['port']}{server['chroot']}",
            timeout=20.0,
            use_ssl=True,
            certfile=tls["cert"],
            keyfile=tls["key"],
            ca=tls["ca"],
        )
        self.provider = config["providers"][0]
        self.free: dict[str, dict[str, Any]] = {}
        self.busy: dict[str, dict[str, Any]] = {}
        self.served: set[str] = set()

    def start(self) -> None:
        """Connects and registers one node per host."""
        self.kazoo.start(20)
        self.kazoo.ensure_path(REQUESTS)
        for host in self.provider["pools"][0]["nodes"]:
            node = {
                "state": "ready",
                "state_time": time.time(),
                "type": host["labels"],
                "provider": self.provider["name"],
                "allocated_to": None,
                "interface_ip": host["name"],
                "connection_port": host["connection-port"],
                "python_path": "auto",
                "slot": 0,
            }
            path = self.kazoo.create(f"{NODES}/", json.dumps(node).encode(), sequence=True, makepath=True)
            self.free[path] = node
        pool = {"id": "mock", "state": "running", "supported_labels": []}
        self.kazoo.create(POOL, json.dumps(pool).encode(), ephemeral=True, makepath=True)

    def turn(self) -> None:
        """Serves what can be served now and takes back what was used."""
        names = set(self.kazoo.get_children(REQUESTS))
        self.served &= names
        self._take_back(names)
        self._serve(sorted(names - self.served)[: len(self.free)])

    def _serve(self, names: list[str]) -> None:
        """Fulfils requests; no call waits for another's answer."""
        answers = [(name, self.kazoo.get_async(f"{REQUESTS}/{name}")) for name in names]
        changes = []
        for name, answer in answers:
            path, node = self.free.popitem()
            node = {**node, "allocated_to": name}
            request = json.loads(answer.get()[0])
            request.update(state="fulfilled", state_time=time.time(), nodes=[path.rsplit("/", 1)[1]])
            change = self.kazoo.transaction()
            change.set_data(path, json.dumps(node).encode())
            change.set_data(f"{REQUESTS}/{name}", json.dumps(request).encode())
            changes.append(change.commit_async())
            self.served.add(name)
            self.busy[path] = node
        for change in changes:
            check(change.get())

    def _take_back(self, requests: set[str]) -> None:
        mine = [path for path, node in self.busy.items() if node["allocated_to"] not in requests]
        answers = [(path, self.kazoo.get_async(path), self.kazoo.get_children_async(f"{path}/lock")) for path in mine]
        changes = []
        for path, data, lock in answers:
            node = json.loads(data.get()[0])
            if node["state"] != "used" or lock.get():
                continue
            fresh = {**self.busy.pop(path), "allocated_to": None, "state": "ready"}
            change = self.kazoo.transaction()
            change.delete(f"{path}/lock")
            change.delete(path)
            # Kazoo's Transaction.create() drops the slash at the end and would name it "nodes0000000001".
            change.create(f"{NODES}/n", json.dumps(fresh).encode(), sequence=True)
            changes.append((fresh, change.commit_async()))
        for fresh, change in changes:
            self.free[check(change.get())[-1]] = fresh


def check(answers: list[Any]) -> list[Any]:
    """Results of a Kazoo transaction. :raises KazooException: it failed; nothing was changed."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", dest="config", required=True)
    parser.add_argument("-f", action="store_true")
    parser.add_argument("--no-webapp", action="store_true")
    with open(parser.parse_args().config, encoding="utf-8") as file:
        launcher = MockLauncher(yaml.safe_load(file))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    launcher.start()
    while not stop.wait(POLL_SECONDS):
        launcher.turn()
    launcher.kazoo.stop()


if __name__ == "__main__":
    main()
