# SPDX-License-Identifier: Apache-2.0
"""What the nodepool-agents plugin of Jenkins does with ZooKeeper, with plain Kazoo.

It keeps less of a record than Zuul: it writes the fields of nodes that it knows, with ``null`` left out, and drops
the others.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from typing import Any

from kazoo.exceptions import NodeExistsError

from tests.support.plain_kazoo import PlainKazoo
from tests.support.pool_znodes import NODES, REQUESTS
from tests.support.wait import wait_for

REQUESTOR = "jenkins.example.com"
#: It reads the number of every contender with this, and gives up when one has none.
NUMBER = re.compile(r"_([0-9]+)$")
#: Fields of a node that it keeps when it writes one.
KEPT = frozenset(
    {
        *("host_keys", "state_time", "created_time", "launcher", "allocated_to", "pool", "interface_ip", "ssh_port"),
        *("hostname", "public_ipv6", "public_ipv4", "private_ipv4", "connection_port", "connection_type", "cloud"),
        *("image_id", "hold_expiration", "hold_job", "username", "az", "provider", "external_id", "type", "comment"),
        *("state", "region", "build_id"),
    }
)
LOCK_SECONDS = 30.0


class JenkinsLock:
    """The lock of a node: the least number has it; whoever comes later waits for each one before it to go.

    :param mark: what stands between the unique part of a contender's name and its number.
    """

    def __init__(self, kazoo: PlainKazoo, directory: str, owner: str, mark: str = "__lock__") -> None:
        self._kazoo = kazoo
        self._directory = directory
        self._owner = owner.encode()
        self._mark = mark
        self.contender = ""

    def acquire(self) -> None:
        """Blocks until it is taken. :raises AssertionError: a contender has no number, or does not go."""
        with contextlib.suppress(NodeExistsError):
            self._kazoo.create(self._directory, self._owner, makepath=True)
        prefix = f"{self._directory}/{uuid.uuid4()}{self._mark}"
        self.contender = self._kazoo.create(prefix, self._owner, ephemeral=True, sequence=True)
        own = number_of(self.contender)
        for name in self._kazoo.get_children(self._directory):
            if number_of(name) < own:
                self._wait_until_gone(f"{self._directory}/{name}")

    def release(self) -> None:
        self._kazoo.delete(self.contender)

    def _wait_until_gone(self, path: str) -> None:
        gone = threading.Event()
        while self._kazoo.exists(path, watch=lambda _event: gone.set()) is not None:
            assert gone.wait(LOCK_SECONDS), f"{path} does not go"
            gone.clear()


def number_of(contender: str) -> int:
    """The number of a contender for a lock, as it reads it."""
    match = NUMBER.search(contender)
    assert match is not None, f"Jenkins cannot read the number of {contender}"
    return int(match[1])


class JenkinsClient:
    """One Jenkins.

    :param hosts: connection string with the chroot, for the port without TLS.
    """

    def __init__(self, hosts: str) -> None:
        self.kazoo = PlainKazoo(hosts=hosts, timeout=10.0)
        self._locks: dict[str, JenkinsLock] = {}

    def start(self) -> None:
        self.kazoo.start(20)

    def stop(self) -> None:
        """Ends the session: its requests and locks go. May be called again."""
        self.kazoo.stop()
        self.kazoo.close()

    def submit(self, label: str, build_id: str = "job-1") -> str:
        """Asks for one node; returns the id of the request."""
        request = {
            "node_types": [label],
            "declined_by": [],
            "state_time": time.time(),
            "reuse": True,
            "requestor": REQUESTOR,
            "state": "requested",
            "nodes": [],
            "jenkins_label": f"nodepool-{label}",
            "build_id": build_id,
        }
        path: str = self.kazoo.create(
            f"{REQUESTS}/100-", json.dumps(request).encode(), ephemeral=True, sequence=True, makepath=True
        )
        return path.rsplit("/", 1)[1]

    def request(self, request_id: str) -> dict[str, Any]:
        """The record of a request that is there."""
        return self._read(f"{REQUESTS}/{request_id}")

    def wait(self, request_id: str) -> dict[str, Any]:
        """Blocks until a request is ``fulfilled`` or ``failed``; returns its record."""

        def ended() -> dict[str, Any] | None:
            request = self.request(request_id)
            return request if request["state"] in ("fulfilled", "failed") else None

        request = wait_for(f"request {request_id} of Jenkins ends", ended)
        assert request is not None
        return request

    def accept(self, request_id: str) -> str:
        """Locks the node of a fulfilled request, marks it in use, and deletes the request; returns the node's id."""
        (name,) = self.request(request_id)["nodes"]
        node_id = str(name)
        lock = JenkinsLock(self.kazoo, f"{NODES}/{node_id}/lock", f"{REQUESTOR}_job-1")
        try:
            lock.acquire()
            self._locks[node_id] = lock
            self._write_node(node_id, state="in-use", build_id="job-1")
        finally:
            self.kazoo.delete(f"{REQUESTS}/{request_id}")
        return node_id

    def hold(self, node_id: str, until_ms: int) -> None:
        """Keeps a node, and unlocks it.

        :param until_ms: milliseconds since the epoch.
        """
        self._write_node(node_id, hold_expiration=until_ms)
        self._write_node(node_id, state="hold", comment="Jenkins hold", hold_job="job-1")
        self._locks.pop(node_id).release()

    def give_back(self, node_id: str) -> None:
        """Marks a node used, and unlocks it if it has its lock."""
        self._write_node(node_id, state="used")
        if lock := self._locks.pop(node_id, None):
            lock.release()

    def _read(self, path: str) -> dict[str, Any]:
        record = json.loads(self.kazoo.get(path)[0])
        assert isinstance(record, dict)
        return record

    def _write_node(self, node_id: str, **changes: Any) -> None:
        path = f"{NODES}/{node_id}"
        record = {**self._read(path), **changes}
        kept = {key: value for key, value in record.items() if key in KEPT and value is not None}
        self.kazoo.set(path, json.dumps(kept).encode())
