# SPDX-License-Identifier: Apache-2.0
"""The part of Zuul: submit a request, lock the nodes, use them, return them. Plain Kazoo, no code of Nodepool.

What is read and written, and in which order, is the contract between Zuul and Nodepool.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent
from kazoo.recipe.lock import Lock

from demo_lib.errors import DemoError

REQUESTS = "/nodepool/requests"
NODES = "/nodepool/nodes"

#: Zuul's precedence "normal".
PRIORITY = "200"


@dataclass(frozen=True)
class Job:
    """What a request and its nodes say of the job that they are for."""

    tenant: str
    project: str
    pipeline: str
    name: str


#: Of the steps that are shown one by one.
DEMO_JOB: Final = Job("example", "example/project", "check", "demo-two-nodes")


class Zuul:
    """A client with the name of a Zuul system.

    :param port: of a ZooKeeper on this machine.
    :param ca: directory with ``client.pem``, ``client.key`` and ``ca.pem``.
    """

    def __init__(self, port: int, ca: Path) -> None:
        self.system_id = uuid.uuid4().hex
        self._locks: dict[str, Lock] = {}
        self._client = KazooClient(
            hosts=f"127.0.0.1:{port}",
            use_ssl=True,
            certfile=str(ca / "client.pem"),
            keyfile=str(ca / "client.key"),
            ca=str(ca / "ca.pem"),
        )

    def connect(self, timeout_seconds: float) -> None:
        """Wait for the server. Blocks. Raises DemoError when it does not answer in time."""
        try:
            self._client.start(timeout_seconds)
        except KazooTimeoutError as error:
            raise DemoError(f"ZooKeeper did not answer within {timeout_seconds:.0f} s") from error

    def close(self) -> None:
        """End the session; its locks go with it. Blocks shortly."""
        self._client.stop()
        self._client.close()

    def submit(self, labels: Sequence[str], job: Job = DEMO_JOB) -> str:
        """Write a request as Zuul's scheduler does. Blocks. Returns its id."""
        now = time.time()
        request = {
            "requestor_data": {
                "build_set_uuid": uuid.uuid4().hex,
                "tenant_name": job.tenant,
                "pipeline_name": job.pipeline,
                "job_uuid": uuid.uuid4().hex,
                "job_name": job.name,
                "span_info": None,
            },
            "node_types": list(labels),
            "requestor": self.system_id,
            "created_time": now,
            "provider": None,
            "state": "requested",
            "state_time": now,
            "relative_priority": 0,
            "event_id": uuid.uuid4().hex,
            "tenant_name": job.tenant,
        }
        path = self._client.create(
            f"{REQUESTS}/{PRIORITY}-", json.dumps(request).encode(), sequence=True, makepath=True
        )
        return str(path).rsplit("/", 1)[-1]

    def request(self, request_id: str) -> dict[str, Any]:
        """Read a request. Blocks. Raises DemoError when it does not exist."""
        return self._read(f"{REQUESTS}/{request_id}")

    def wait_for_answer(self, request_id: str, timeout_seconds: float) -> dict[str, Any]:
        """Wait until Nodepool wrote ``fulfilled`` or ``failed``. Blocks. Raises DemoError when it takes too long."""
        deadline = time.monotonic() + timeout_seconds
        changed = threading.Event()

        def wake(_event: WatchedEvent) -> None:
            changed.set()

        while True:
            changed.clear()
            data, _stat = self._client.get(f"{REQUESTS}/{request_id}", watch=wake)
            request: dict[str, Any] = json.loads(data)
            if request["state"] in ("fulfilled", "failed"):
                return request
            if not changed.wait(max(0.0, deadline - time.monotonic())):
                raise DemoError(f"request {request_id} is still {request['state']} after {timeout_seconds:.0f} s")

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Every node record by its id. Blocks."""
        try:
            ids = self._client.get_children(NODES)
        except NoNodeError:
            return {}
        found = {}
        for node_id in sorted(ids):
            try:
                data, _stat = self._client.get(f"{NODES}/{node_id}")
            except NoNodeError:
                continue
            if data:
                found[node_id] = json.loads(data)
        return found

    def accept(self, request_id: str, node_ids: Sequence[str]) -> None:
        """Check and lock the nodes of a fulfilled request, then delete it, in Zuul's order. Blocks."""
        for node_id in node_ids:
            node = self._read(f"{NODES}/{node_id}")
            if node["allocated_to"] != request_id:
                raise DemoError(f"node {node_id} belongs to {node['allocated_to']}, not to {request_id}")
            lock = self._client.Lock(f"{NODES}/{node_id}/lock", self.system_id)
            if not lock.acquire(timeout=30.0):
                raise DemoError(f"node {node_id} could not be locked within 30 s")
            self._locks[node_id] = lock
        self._client.delete(f"{REQUESTS}/{request_id}")

    def forget(self, request_id: str) -> None:
        """Delete a request that failed, as Zuul does when it has reported that. Blocks."""
        self._client.delete(f"{REQUESTS}/{request_id}")

    def use(self, node_ids: Sequence[str], job: Job = DEMO_JOB) -> None:
        """Mark locked nodes ``in-use``, as Zuul does just before the first task of a job. Blocks."""
        user_data = {"zuul_system": self.system_id, "project_name": job.project}
        for node_id in node_ids:
            self._update(node_id, state="in-use", user_data=user_data)

    def give_back(self, node_ids: Sequence[str]) -> None:
        """Mark nodes ``used`` and unlock them, as Zuul does when a job has ended. Blocks."""
        self._unlock(node_ids, state="used")

    def hold(self, node_ids: Sequence[str], job: Job, reason: str, seconds: int) -> None:
        """Keep nodes of a job that failed, as ``zuul-client autohold`` asks for. Blocks."""
        held_for = f"{job.tenant} {job.project} {job.name} .*"
        self._unlock(node_ids, state="hold", hold_job=held_for, comment=reason, hold_expiration=seconds)

    def _unlock(self, node_ids: Sequence[str], **changes: Any) -> None:
        for node_id in node_ids:
            self._update(node_id, **changes)
            self._locks.pop(node_id).release()

    def _read(self, path: str) -> dict[str, Any]:
        try:
            data, _stat = self._client.get(path)
        except KazooException as error:
            raise DemoError(f"cannot read {path}: {type(error).__name__}") from error
        value: dict[str, Any] = json.loads(data)
        return value

    def _update(self, node_id: str, **changes: Any) -> None:
        path = f"{NODES}/{node_id}"
        record = {**self._read(path), **changes, "state_time": time.time()}
        self._client.set(path, json.dumps(record).encode())
