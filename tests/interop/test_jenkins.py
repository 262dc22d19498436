# SPDX-License-Identifier: Apache-2.0
"""Jenkins' nodepool-agents plugin is a client of the same protocol, with requests and locks of its own form.

It keeps less of a record than Zuul: it writes the fields of nodes that it knows, with ``null`` left out, and drops the
others.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from tests.chaos.transaction_log import read_writes
from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.plain_kazoo import PlainKazoo
from tests.support.pool_znodes import NODES, REQUEST_LOCKS, REQUESTS
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

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


OWN_KEYS = {"jenkins_label": "nodepool-small", "build_id": "job-1"}
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def jenkins(workplace: Workplace) -> Iterator[JenkinsClient]:
    """A Jenkins in the test's chroot."""
    client = JenkinsClient(workplace.zookeeper.plain_hosts(workplace.chroot))
    client.start()
    yield client
    client.stop()


def _records(workplace: Workplace, request_id: str) -> list[dict[str, object]]:
    """All that was ever written to a request, in order."""
    path = f"{workplace.chroot}{REQUESTS}/{request_id}"
    logs = workplace.zookeeper.directory.glob("**/version-2")
    return [json.loads(write.data) for write in read_writes(logs) if write.path == path and write.data]


def _lock_contenders(workplace: Workplace) -> list[str]:
    """Names of all that ever contended for a lock of a node or a request."""
    contender = re.compile(rf"{workplace.chroot}(?:{NODES}/[^/]+/lock|{REQUEST_LOCKS}/[^/]+)/(.+)")
    logs = workplace.zookeeper.directory.glob("**/version-2")
    found = [contender.fullmatch(write.path) for write in read_writes(logs) if write.kind == "create"]
    return [match[1] for match in found if match]


@pytest.mark.parametrize("driver", ["static", "launched"])
def test_life_of_a_request(workplace: Workplace, jenkins: JenkinsClient, driver: str) -> None:
    """4.1, 4.2, 4.4: an ephemeral request is served; its own keys are in every record that is written."""
    provider = StaticProvider([StaticHost("127.1.1.1")]) if driver == "static" else FakeProvider(["small"])
    workplace.launch(provider)

    request_id = jenkins.submit("small")
    assert request_id.startswith("100-")
    request = jenkins.wait(request_id)
    assert request["state"] == "fulfilled"
    (node_id,) = request["nodes"]
    node = workplace.znodes.node(node_id)
    assert node is not None
    assert (node["state"], node["allocated_to"]) == ("ready", request_id)
    assert workplace.znodes.node_lockers(node_id) == []
    stat = jenkins.kazoo.exists(f"{REQUESTS}/{request_id}")
    assert stat.owner_session_id == jenkins.kazoo.client_id[0]

    written = _records(workplace, request_id)
    assert [record["state"] for record in written][-1] == "fulfilled"
    assert len(written) > 1
    assert all({key: record.get(key) for key in OWN_KEYS} == OWN_KEYS for record in written)
    assert all(record["requestor"] == "jenkins.example.com" for record in written)

    assert jenkins.accept(request_id) == node_id
    jenkins.give_back(node_id)
    if driver == "static":
        workplace.wait_nodes(provider)
    wait_for("the used node has gone", lambda: node_id not in workplace.znodes.nodes())
    wait_for("no lock directory is left", lambda: not workplace.znodes.children(REQUEST_LOCKS))


def test_declined_and_failed(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """4.5: a pool that declines, and the end as ``failed``, keep the keys, too."""
    workplace.launch(StaticProvider([StaticHost("127.1.1.1", ["other"])]))
    request_id = jenkins.submit("small")
    request = jenkins.wait(request_id)
    assert request["state"] == "failed"
    assert len(request["declined_by"]) == 1
    assert all({key: record.get(key) for key in OWN_KEYS} == OWN_KEYS for record in _records(workplace, request_id))


def test_declined_by_one_and_served_by_another(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """4.5, A-15: what one pool gives back another one serves."""
    workplace.launch(
        [
            FakeProvider(["small"], name="full", pool_settings={"max-servers": 0, "priority": 1}),
            FakeProvider(["small"], name="empty", pool_settings={"priority": 2}),
        ]
    )
    request_id = jenkins.submit("small")
    assert jenkins.wait(request_id)["state"] == "fulfilled"
    records = _records(workplace, request_id)
    assert any(record["state"] == "requested" and record["declined_by"] for record in records)
    assert all({key: record.get(key) for key in OWN_KEYS} == OWN_KEYS for record in records)


def test_contenders_can_be_read(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """3: Jenkins finds a number in the name of whoever contends for a lock, and gets the lock after the launcher."""
    workplace.launch(FakeProvider(["small"], settings={"boot-seconds": 1}))
    request_id = jenkins.submit("small")
    (node_id,) = wait_for("a node is being built", lambda: list(workplace.znodes.nodes("building")))
    (ours,) = workplace.znodes.node_lockers(node_id)
    lock = JenkinsLock(jenkins.kazoo, f"{NODES}/{node_id}/lock", "jenkins")
    lock.acquire()
    assert number_of(ours) < number_of(lock.contender)
    assert workplace.znodes.node_lockers(node_id) == [lock.contender.rsplit("/", 1)[1]]
    lock.release()

    assert jenkins.wait(request_id)["state"] == "fulfilled"
    jenkins.give_back(jenkins.accept(request_id))
    wait_for("the used node has gone", lambda: node_id not in workplace.znodes.nodes())
    names = _lock_contenders(workplace)
    # Of the request; of the node: launch, Jenkins twice, deletion.
    assert len(names) >= 5
    assert all(number_of(name) >= 0 for name in names)


@pytest.mark.parametrize("mark", ["__lock__", "jenkins_"])
def test_locked_node_is_left_alone(workplace: Workplace, jenkins: JenkinsClient, mark: str) -> None:
    """N-2: a ready node whose lock Jenkins has is given to nobody else; it is as soon as the lock is free.

    Also when its contender has a name that Kazoo does not know.
    """
    workplace.launch(StaticProvider([StaticHost("127.1.1.1"), StaticHost("127.1.2.1", ["other"])]))
    znodes = workplace.znodes
    (small,) = [name for name, node in znodes.nodes().items() if node["type"] == ["small"]]
    lock = JenkinsLock(jenkins.kazoo, f"{NODES}/{small}/lock", "jenkins", mark)
    lock.acquire()
    waiting = jenkins.submit("small")
    for _ in range(3):
        other = jenkins.submit("other")
        assert jenkins.wait(other)["state"] == "fulfilled"
        jenkins.give_back(jenkins.accept(other))
    assert jenkins.request(waiting)["state"] == "requested"
    node = znodes.node(small)
    assert node is not None
    assert (node["state"], node.get("allocated_to")) == ("ready", None)
    lock.release()
    assert jenkins.wait(waiting)["nodes"] == [small]


def test_hold(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """C-6, 5.3: a node on hold, with a time in milliseconds, stays; when Jenkins marks it used it goes."""
    workplace.launch(FakeProvider(["small"]))
    request_id = jenkins.submit("small")
    jenkins.wait(request_id)
    node_id = jenkins.accept(request_id)
    until = round(time.time() * 1000) + DAY_MS
    jenkins.hold(node_id, until)
    # Others come and go meanwhile: the launcher has looked at all nodes.
    for _ in range(3):
        other = jenkins.submit("small")
        assert jenkins.wait(other)["state"] == "fulfilled"
        jenkins.give_back(jenkins.accept(other))
    held = workplace.znodes.node(node_id)
    assert held is not None
    assert (held["state"], held["hold_expiration"], held["comment"]) == ("hold", until, "Jenkins hold")
    jenkins.give_back(node_id)
    wait_for("the held node has gone", lambda: node_id not in workplace.znodes.nodes())


def test_fields_that_jenkins_drops(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """S-8, S-10: Jenkins writes nodes without their slot; both slots of a host come back all the same."""
    provider = StaticProvider([StaticHost("127.1.1.1", slots=2)])
    workplace.launch(provider)
    requests = [jenkins.submit("small") for _ in range(2)]
    nodes = []
    for request_id in requests:
        assert jenkins.wait(request_id)["state"] == "fulfilled"
        nodes.append(jenkins.accept(request_id))
    assert all("slot" not in (workplace.znodes.node(node_id) or {}) for node_id in nodes)
    for node_id in nodes:
        jenkins.give_back(node_id)
    workplace.wait_nodes(provider)
    assert sorted(node["slot"] for node in workplace.znodes.nodes().values()) == [0, 1]


def test_jenkins_ends(workplace: Workplace, jenkins: JenkinsClient) -> None:
    """4.6, 5.4: with Jenkins its requests and locks go: nodes in use are deleted, others are free again."""
    provider = StaticProvider([StaticHost(f"127.1.1.{number}") for number in (1, 2)])
    workplace.launch(provider)
    requests = [jenkins.submit("small") for _ in range(3)]
    wait_for(
        "two of three are served",
        lambda: [jenkins.request(name)["state"] for name in requests].count("fulfilled") == 2,
    )
    (first, _) = [name for name in requests if jenkins.request(name)["state"] == "fulfilled"]
    used = jenkins.accept(first)
    jenkins.stop()
    workplace.wait_nodes(provider)
    assert used not in workplace.znodes.nodes()
    assert workplace.znodes.children(REQUESTS) == []
