# SPDX-License-Identifier: Apache-2.0
"""The web endpoints of the released Nodepool 11.0.0, ours beside its own on one ZooKeeper (reference/commands 6)."""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodepool.zk import paths
from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.released import released_programs
from tests.support.serving_process import ServingProcess
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

JSON = "application/json"
LISTINGS = ("/image-list", "/dib-image-list", "/image-status", "/node-list", "/request-list", "/label-list")
#: Ages go on between two questions.
AGE = re.compile(r"\d+:\d\d:\d\d:\d\d")
HEADERS = ("content-type", "access-control-allow-origin", "cache-control")


@dataclass(frozen=True)
class Told:
    """An answer.

    :param headers: values of `HEADERS`.
    """

    status: int
    headers: Mapping[str, str | None]
    text: str

    @property
    def rows(self) -> list[str]:
        """What is told, in an order that does not depend on that of the rows, without ages."""
        found = self.text.split("\n")
        if self.headers["content-type"] == JSON and self.text.startswith("["):
            found = [json.dumps(row) for row in json.loads(self.text)]
        return sorted(AGE.sub("AGE", line) for line in found)


@dataclass(frozen=True)
class Webs:
    """Ports of both."""

    released: int
    ours: int


@pytest.fixture
def a_node(znodes: PoolZnodes, images: PoolZnodes) -> str:
    """Its id. There are more nodes and requests of a provider that nobody serves, and images."""
    pod = znodes.add_node("in-use", provider="other", type="single", connection_port={"token": 1}, user_data=None)
    znodes.kazoo.create(f"{paths.node(pod)}/lock/{'0' * 32}__lock__0000000000", makepath=True)
    znodes.add_node("ready", provider="other", type=[], external_id=17, slot=3, state_time=1.5, az="z")
    znodes.submit(["small", "big"], state="fulfilled", relative_priority=7, declined_by=["l-1"], nodes=[pod])
    znodes.submit(["nothing"], "100", state="fulfilled", event_id=None)
    fields = {"comment": "käse <b>", "hold_job": "job", "user_data": {"a": 1}, "driver_data": {"x": [1]}}
    more = {"allocated_to": "200-1", "hostname": "h", "launcher": "l", "type": ["a", "b"], "public_ipv4": "192.0.2.1"}
    return znodes.add_node("hold", provider="other", **fields, **more)


@pytest.fixture
def webs(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, a_node: str) -> Iterator[Webs]:
    """The released launcher, which serves one static host, and our ``nodepool-web``."""
    provider = StaticProvider([StaticHost("127.1.0.1", labels=("small", "big"))], name="lab")
    (port,) = free_ports(1)
    configs = []
    for name, number in (("released", port), ("ours", 0)):
        configs.append(tmp_path / f"{name}.yaml")
        webapp = {"port": number, "listen_address": "127.0.0.1"}
        write_config(configs[-1], zookeeper, chroot, [provider], extra={"webapp": webapp})
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(released_programs().launcher), "-c", str(configs[0]), "-f"]
    released = ChildProcess(command, tmp_path / "released.log", env=environment)
    ours = ServingProcess("nodepool.cmd.web", configs[1])
    try:
        released.start_until("the released launcher", lambda: _serves(port))
        ours.start()
        yield Webs(port, int(ours.wait_ready().rpartition(":")[2]))
    finally:
        ours.stop()
        released.stop()


def _serves(port: int) -> bool:
    try:
        return ask(port, "/ready").status == 200
    except OSError:
        return False


def ask(port: int, path: str, accept: str | None = None, method: str = "GET", **headers: str) -> Told:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={**headers, **({} if accept is None else {"Accept": accept})})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    return Told(answer.status, {name: answer.headers.get(name) for name in HEADERS}, text)


def wait_same(webs: Webs, *question: str | None) -> Told:
    """The answer on which both agree; they keep answers for a second, and learn of changes at different times."""
    answers: list[Told] = []

    def same() -> bool:
        answers[:] = [ask(port, *question) for port in (webs.released, webs.ours)]  # type: ignore[arg-type]
        one, other = answers
        assert (other.status, other.headers, other.rows) == (one.status, one.headers, one.rows)
        return True

    wait_for(f"the same answer to {question}", same)
    return answers[1]


def test_listings(webs: Webs, a_node: str) -> None:
    """WP-1 to WP-4, WP-7: each row, each character but those of ages."""
    host = "127.1.0.1"
    wait_for("the node of the host is there", lambda: host in ask(webs.released, "/node-list").text)
    one_node = (f"/node-list?node_id={a_node}", "/node-list?node_id=zz", "/image-list?node_id=zz")
    for accept in (None, JSON):
        for path in (*LISTINGS, "/ready", *one_node):
            told = wait_same(webs, path, accept)
            assert (told.status, bool(told.text)) == (200, True)
    assert len(json.loads(wait_same(webs, "/node-list", JSON).text)) == 4


def test_negotiation_and_fields(webs: Webs) -> None:
    """WP-2, WP-4, WP-5"""
    for accept in (
        *("text/html", "*/*", "application/*", f"{JSON}, text/plain", f"{JSON};q=0.9, text/plain;q=0.8", "garbage"),
        *(f"{JSON}, */*;q=0.1", f"{JSON};q=x", "*", "text/plain;q=0, */*", f"{JSON};q=0.5, text/html;q=0"),
        *("APPLICATION/JSON", f"{JSON}, text/plain;q=2", "application/xml, */*;q=0.1"),
    ):
        wait_same(webs, "/label-list", accept)
    for query in ("state,id", "nothing", "", "id,zz", "id&fields=state", "id,%20state", "id;state", "ID"):
        wait_same(webs, f"/node-list?fields={query}")
    for path in ("/image-list?fields=id,image", "/dib-image-list?fields=formats", "/image-status?fields=paused"):
        wait_same(webs, path)
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        wait_same(webs, "/label-list", None, method)
        wait_same(webs, "/ready", JSON, method)


def test_conditional_requests_and_other_paths(webs: Webs) -> None:
    """WP-5, WP-6"""
    for moment, status in (("Sat, 01 Jan 2050 00:00:00 GMT", 304), ("Sat, 01 Jan 2000 00:00:00 GMT", 200), ("x", 200)):
        answers = [ask(port, "/label-list", **{"If-Modified-Since": moment}) for port in (webs.released, webs.ours)]
        assert [(told.status, told.headers) for told in answers] == [(status, answers[0].headers)] * 2
    for path in ("/node-list/", "/NODE-LIST", "/nothing"):
        assert [ask(port, path).status for port in (webs.released, webs.ours)] == [404, 404]
