# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a znode: it is refused with `InvalidRecord`, or everything that we do with a record can be done.

That includes what comes long after reading: copies, decisions, writing it again, tables, metrics, log lines. An error
of another kind would end a pass of a worker, or keep a cache from becoming complete, again and again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodepool.driver.metastatic import slots as metastatic
from nodepool.driver.metastatic.slots import BackingData
from nodepool.listing import terminal
from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import FORMATS, render
from nodepool.logconfig import MultiLineFormatter, get_annotated_logger
from nodepool.metrics import catalog, reports
from nodepool.metrics.registry import Series
from nodepool.metrics.statsd import statsd_names
from nodepool.model.component import PoolComponent
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.model.record import InvalidRecord
from nodepool.model.request import NodeRequest
from nodepool.plan import nodes, static, triage
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.zk import components, paths
from tests.support.odd_json import TRAPS, records, values
from tests.support.terminal import TerminalStream

NOW = 1_800_000_000.0
GOOD_NODE: dict[str, Any] = {
    **Node("small").to_dict(NOW),
    "state": "ready",
    "provider": "cloud",
    "pool": "main",
    "hostname": "h1",
    "user_data": BackingData("o", "small", 2, False, NOW, (None, None)).encode(),
    "driver_data": metastatic.driver_data({"nodepool_node_id": "1"}, "0000000003", 1, "0000000007"),
    "resources": {"cores": 1, "ram": 2.5},
    "host_keys": ["ssh-ed25519 AAAA"],
}
GOOD_REQUEST: dict[str, Any] = {**NodeRequest().to_dict(NOW), "node_types": ["small"], "requestor": "zuul"}
GOOD_POOL: dict[str, Any] = {**PoolComponent("host", "1").to_dict(), "id": "host-Pool-1", "provider_name": "cloud"}
GOOD_BUILD: dict[str, Any] = {**ImageBuild("debian", "1").to_dict(NOW), "builder": "b", "formats": "raw,qcow2"}
GOOD_UPLOAD: dict[str, Any] = {**ImageUpload("debian", "1", "cloud", "1").to_dict(NOW), "external_id": "i"}

fuzz = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def check_text(error: InvalidRecord) -> None:
    """It goes into the log."""
    assert len(str(error)) < 400


def as_record(data: bytes, read: Callable[[dict[str, Any]], Any]) -> tuple[Any, dict[str, Any]]:
    """Read as caches do. Raises InvalidRecord, of which the text is short."""
    try:
        found = paths.decode(data)
        return read(found), found
    except InvalidRecord as error:
        check_text(error)
        raise


def written(record: Any, found: dict[str, Any], read: Callable[[dict[str, Any]], Any]) -> None:
    """It can be written; nothing that we do not know is lost, and what comes back is the same."""
    copy = record.copy()
    data = paths.encode(copy.to_dict(NOW))
    stored = paths.decode(data)
    again = read(stored)
    assert paths.encode(again.to_dict(NOW)) == data
    assert {key: stored[key] for key in copy.extra} == copy.extra
    assert set(found) - set(stored) <= {"tenant_name", "builder", "builder_id", "formats"}


def shown(table: Any) -> None:
    for form in FORMATS:
        render(table, form).encode("utf-8", "backslashreplace")
    terminal.show(table, None, TerminalStream())
    for line in render(table).splitlines():
        assert line.isprintable()


def counted(metrics: Iterable[Series]) -> None:
    """Each name is one name on the wire of statsd."""
    for series in metrics:
        assert not any(set(name) & set("|\r\n") for name in statsd_names(series))


def logged(**ids: str | None) -> None:
    """A line that a plain UTF-8 file takes, and in which nobody else can begin a line."""
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "x"})
    record.msg, _ = get_annotated_logger(logging.getLogger("n"), **ids).process("said %s", {})
    record.args = tuple(ids.values())[:1]
    text = MultiLineFormatter().format(record)
    text.encode()
    assert all("INFO n: " in line for line in text.splitlines())


def read_node(data: dict[str, Any]) -> Node:
    return Node.from_dict(data, "0000000001")


@fuzz
@example(json.dumps({**GOOD_NODE, "attributes": {"a": [[]] * 3}}).encode())
@example(b'{"state": %s, "type": []}' % (b"[" * 700 + b"]" * 700))
@given(records(GOOD_NODE, ["ssh_port", "hold_expiration"]))
def test_nodes(data: bytes) -> None:
    """reference/zookeeper 5: what is needed is there and has its type; the rest is kept."""
    try:
        node, found = as_record(data, read_node)
    except InvalidRecord:
        return
    written(node, found, read_node)
    assert node.state in Node.STATES
    assert all(isinstance(label, str) for label in [*node.type, *node.host_keys])
    assert node.hold_expiration is None or math.isfinite(node.hold_expiration)
    for request in (None, NodeRequest("200-1")):
        nodes.judge_unlocked(node, lambda _, request=request: request)  # type: ignore[misc]
    nodes.judge_age(node, NOW, lambda label: 60, 60)
    shown(node_table([node], NodeFacts(), NOW, detail=True))
    use = QuotaInformation.from_resources(node.resources or {})
    use.subtract(QuotaInformation.from_resources(node.resources or {}))
    paths.encode(use.get_resources())
    static.decide({}, [node], lambda _: False)
    nodes.missing({"small": 1}, [node], [])
    counted(reports.node_gauges([node], []))
    counted([catalog.LAUNCH.series("ready", str(node.provider), node.az or "", node.requestor or "")])
    metastatic.place_of(node)
    backing = BackingData.decode(node.user_data)
    assert backing is None or BackingData.decode(backing.encode()) == backing
    if node.allocated_to is not None and paths.is_name(node.allocated_to):
        paths.request(node.allocated_to).encode()
    logged(event_id=node.comment if isinstance(node.comment, str) else None, node_id=node.hostname)


def read_request(data: dict[str, Any]) -> NodeRequest:
    return NodeRequest.from_dict(data, "200-0000000001")


@fuzz
@given(records(GOOD_REQUEST, ["tenant_name"]))
def test_requests(data: bytes) -> None:
    """reference/zookeeper 4"""
    try:
        request, found = as_record(data, read_request)
    except InvalidRecord:
        return
    written(request, found, read_request)
    queue = RequestQueue()
    queue.put(request)
    queue.put(NodeRequest.from_dict(GOOD_REQUEST, "100-0000000002"))
    me = triage.PoolInfo("me", "cloud", frozenset({"small"}), 100, False)
    triage.screen(RequestKind.of(request), me, [me])
    nodes.missing({"small": 1}, [], [request])
    nodes.reset_lost_request(request.copy(), [])
    reports.request_gauges([request], [])
    shown(request_table([request], NOW))
    logged(event_id=request.event_id, node_request_id=request.id, node_id=request.requestor)


@fuzz
@given(records(GOOD_POOL))
def test_pool_registrations(data: bytes) -> None:
    """reference/zookeeper 7"""
    try:
        pool, _ = as_record(data, lambda found: PoolComponent.from_dict(found, "host0000000001"))
    except InvalidRecord:
        return
    paths.encode(pool.to_dict())
    info = triage.PoolInfo(
        pool.id, pool.provider_name, frozenset(pool.supported_labels), pool.priority, pool.paused, pool.name
    )
    me = triage.PoolInfo("me", "cloud", frozenset(), 100, False)
    triage.screen(RequestKind.of(NodeRequest.from_dict(GOOD_REQUEST)), me, [me, info])
    counted({**reports.node_gauges([], [pool]), **reports.request_gauges([], [pool])})
    shown(label_table([pool]))


@fuzz
@given(records(GOOD_POOL, ["model_api"]))
def test_entry_of_any_component(data: bytes) -> None:
    """reference/zookeeper 7: launchers and builders, of which only an id and the model API are read."""
    components.entry_id(data)
    try:
        level = components.entry_model_api(data)
    except InvalidRecord:
        return
    assert level is None or type(level) is int


def read_build(data: dict[str, Any]) -> ImageBuild:
    return ImageBuild.from_dict(data, "debian", "1")


def read_upload(data: dict[str, Any]) -> ImageUpload:
    return ImageUpload.from_dict(data, "debian", "1", "cloud", "0000000001")


@pytest.mark.parametrize(
    ("good", "read"), [(GOOD_BUILD, read_build), (GOOD_UPLOAD, read_upload)], ids=["build", "upload"]
)
@fuzz
@given(data=st.data())
def test_images(good: dict[str, Any], read: Callable[[dict[str, Any]], Any], data: st.DataObject) -> None:
    """reference/zookeeper 6"""
    try:
        record, found = as_record(data.draw(records(good, ["builder_id", "shell_type"])), read)
    except InvalidRecord:
        return
    written(record, found, read)
    max([record], key=lambda each: each.state_time or 0)


@fuzz
@given(
    st.lists(st.tuples(st.sampled_from(["owner", "label", "slots", "launched", "nodes", "idle_since", "x"]), values))
)
def test_user_data_of_backing_nodes(pairs: list[tuple[str, str]]) -> None:
    """reference/zookeeper 5.6: a JSON text within JSON."""
    text = "{" + ",".join(f'"{key}":{value}' for key, value in [("owner", '"o"'), *pairs]) + "}"
    found = BackingData.decode(text)
    if found is not None:
        assert BackingData.decode(found.encode()) == found
        assert 1 <= found.slots == len(found.nodes)
        assert math.isfinite(found.launched)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap[:12])
def test_each_trap_in_each_kind_of_text(trap: str) -> None:
    """Plain: none of the odd values gets past the decoder as something that cannot be written."""
    for text in (trap, f'{{"a": {trap}}}', f'{{"a": [{trap}, {{"b": {trap}}}]}}'):
        try:
            data = paths.decode(text.encode())
        except InvalidRecord as error:
            check_text(error)
            continue
        assert paths.decode(paths.encode(data)) == data


@fuzz
@given(st.text(max_size=30) | st.sampled_from(["\ud800", "..", "a\x85b", "\u202e", "x" * 300]))
def test_names_that_come_out_of_json(name: str) -> None:
    """A name that we would use in a path is one that ZooKeeper takes, on one level."""
    if paths.is_name(name):
        for path in (paths.node(name), paths.request(name), paths.node_lock(name), paths.request_lock(name)):
            path.encode()
            assert ".." not in path.split("/")
    assert paths.node(name).count("/") == 3 or not paths.is_name(name)
