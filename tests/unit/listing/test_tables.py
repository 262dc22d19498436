# SPDX-License-Identifier: Apache-2.0
"""What listings have: which records, in which order, with which values (reference/commands 2).

What commands print is held by tests/integration/test_command_line_*.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodepool.cmd.configuration import check_table
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.listing import images, pools
from nodepool.listing.nodes import Filter, NodeFacts, host_table, node_table
from nodepool.listing.overview import capacity_table
from nodepool.listing.records import event_table, is_about, launcher_table, maintenance_table
from nodepool.listing.requests import label_table
from nodepool.listing.table import WHOLE, Place, Table, shown
from nodepool.listing.terminal import Display, show
from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.node import Node
from nodepool.model.request import PART_REQUESTOR, NodeRequest
from nodepool.model.status import AccessRule, LauncherComponent, LauncherStatus
from nodepool.plan.attention import registered_launchers
from nodepool.plan.observed import NodeIndex
from nodepool.plan.pool_summary import summarize
from tests.support.observed import NOW, component, node, request, status_of
from tests.support.tables import rows
from tests.support.terminal import TerminalStream
from tests.support.web_records import full


def filled(made: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(made, name, value)
    return made


NODE = filled(
    Node(["gpu-large", "debian"], "0000000001"),
    state=states.READY,
    state_time=NOW - 600,
    allocated_to="200-0000000001",
    provider="cloud",
    pool="main",
    tenant_name="t1",
)
REQUEST = filled(
    NodeRequest("200-0000000001"),
    node_types=["gpu-large"],
    created_time=NOW - 600,
    requestor_data={"tenant_name": "t1"},
)
PLAIN = Node(["debian"], "0000000002")


@rows(__file__, "test_filters")
def test_filters(record: str, shown: list[dict[str, Any]], hidden: list[dict[str, Any]]) -> None:
    """What is not known is not what is wanted."""

    def shows(wanted: dict[str, Any]) -> bool:
        if record == "request":
            return Filter(**wanted).request(REQUEST, NOW)
        return Filter(**wanted).node(NODE if record == "node" else PLAIN, NOW)

    assert [one for one in shown if not shows(one)] == []
    assert [one for one in hidden if shows(one)] == []


EVENTS = {
    "pool": Event(0.0, "l1", "pool cloud-a/main"),
    "launch": Event(0.0, "l1 cloud-a/main", "node 0000000001", "launch failed"),
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize(
    "text",
    ["pool", "node", "0000000001", "cloud-a/main", "cloud-a", "main", "cloud", "cloud-a/", "cloud-b/main", "", "l1"],
)
def test_events_that_are_about_something(name: str, text: str) -> None:
    """OV-5: launches are found by their provider and their pool, too."""
    own = {"pool": ["pool"], "launch": ["node", "0000000001"]}[name]
    assert is_about(EVENTS[name], text) == (text in [*own, "cloud-a/main", "cloud-a", "main"])


@pytest.mark.parametrize(("text", "about"), [("1", True), ("200-1", True), ("100-1", False), ("10", False)])
def test_events_about_an_id_without_zeros(text: str, about: bool) -> None:
    assert is_about(Event(0.0, "l1", "request 200-0000000001", "failed"), text) is about


def keys(table: Table) -> list[str]:
    return [column.key for column in table.columns]


def tables() -> dict[str, Table]:
    shown = full()
    seen = shown.observed
    launchers = [replace(seen.launchers[0], leader=True), seen.launchers[1]]
    closed = next(pool for pool in seen.registered if getattr(pool, "provider_name", "") == "cloud-2")
    closed.allowed_tenants = (AccessRule(("t1", "/t.*/")), AccessRule((), frozenset({"gpu"})))
    old = LauncherComponent("old", "11.0.0")
    old.state = "paused"
    summaries = summarize(seen.statuses)
    registered = [*registered_launchers(seen.registered), old]
    nodes, limits = [*seen.nodes.values()], {"t1": {"cores": 4}, "t3": {"instances": 1}, "t4": {"instances": 1}}
    # A part of a request is not counted beside it.
    part = filled(NodeRequest("200-0000000099"), requestor=PART_REQUESTOR, tenant_name="t1", state=states.REQUESTED)
    requests = {**seen.requests, part.key: part}
    assert part not in replace(seen, requests=requests).waiting
    checks = [CheckResult("label s", False, "no flavor", "x"), CheckResult("quota", True, "10", "y")]
    return {
        "hosts": host_table(summaries, NOW),
        "labels": pools.label_overview(seen),
        "launchers": launcher_table(launchers, registered, NOW),
        "maintenance": maintenance_table(seen.maintenance, NOW),
        "capacity": capacity_table(summaries, NodeIndex.of(nodes).counts),
        "limits": pools.limit_table(summaries, NOW),
        "providers": pools.provider_table(summaries, launchers, NOW),
        "tenants": pools.tenant_table(
            replace(seen, requests=requests, launchers=[LauncherStatus(tenant_limits=limits)])
        ),
        "builds": images.build_table(seen.images, NOW, shown.builders, {"f" * 32: ["0000000007"]}),
        "status": images.image_status_table(seen.images, NOW),
        "overview": images.image_table(seen.images, NOW),
        "uploads": images.upload_table(seen.images, NOW, shown.builders),
        "aliens": images.alien_image_table([("lab", "deb-1", "id")]),
        "images": pools.provider_image_table([("debian", "3", ["1", "2"])]),
        "servers": pools.provider_node_table([filled(Node("small"), id="7", external_id="server")]),
        "names": label_table([component("a", "small", "large"), component("b", "small")]),
        "checks": check_table({"zookeeper": [CheckResult("connection", True, "fine")], "provider c": checks}),
        "events": event_table([Event(5.5, "l1", "host zuul@a:22", "down", "", "no\x1b", 3)], 9.0),
    }


ROWS = (Path(__file__).parent / "rows.txt").read_text(encoding="utf-8")


def test_rows() -> None:
    """reference/commands 2: what is not up comes first; each limit of a cloud is there once."""
    expected: dict[str, list[str]] = {}
    for line in ROWS.strip().replace("\n    ", " ").splitlines():
        name, _, row = line.partition(" ")
        expected.setdefault(name, []).append(row)
    for name, table in tables().items():
        assert [" ".join(keys(table)), *map(json.dumps, table.rows)] == expected.pop(name)
        assert len(set(keys(table))) == len(table.columns) == len(table.rows[0])
    assert not expected


@pytest.mark.parametrize(("failed", "error"), [(1, "broke"), (0, None)])
def test_error_of_a_pool_that_runs(failed: int, error: str | None) -> None:
    """As long as the column beside it counts the launch."""
    (pool,) = summarize(
        [status_of({"provider": "cloud", "launches": {"failed_15m": failed, "last_error": {"text": "broke"}}})]
    )
    assert cells(pools.provider_table([pool], [], NOW))["error"] == error


def long(table: Table) -> Table:
    """With names as long as sites have them, where they are not ids."""
    wordy = {"image", "provider", "builder", "error", "pools", "text", "external_name", "host", "remedy"}
    rows = [
        [
            f"{value}-of-a-name-that-is-as-long-as-it-can-be" if key in wordy else value
            for key, value in zip(keys(table), row, strict=True)
        ]
        for row in table.rows
    ]
    return replace(table, rows=rows)


@pytest.mark.parametrize("name", tables())
def test_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 2: no line is longer, and what commands take as an argument is there as a whole."""
    monkeypatch.setenv("COLUMNS", "80")
    table, stream = long(tables()[name]), TerminalStream()
    show(table, None, stream)
    assert max(map(len, stream.lines)) <= 80
    first = next((n for n, column in enumerate(table.columns) if column.least == WHOLE), None)
    for row in table.rows:
        assert first is None or any(row[first] in line.split() for line in stream.lines), stream.lines
    stream = TerminalStream()
    show(table, Display("wide"), stream)
    wide = [column.header.upper() for column in table.columns if Place.WIDE in column.places]
    assert all(header in stream.lines[0] for header in wide)


@pytest.mark.parametrize(
    ("name", "parts"), [("deb-12-b1", ("deb-12", "b1")), ("deb", ("deb", "")), ("-b1", ("-b1", "")), ("", ("", ""))]
)
def test_name_of_a_build(name: str, parts: tuple[str, str]) -> None:
    """reference/commands 2: split at the last "-"; names of images may have some. Nodes have the path of an upload."""
    assert images.split_build_name(name) == parts
    paths = ["/nodepool/images/deb/builds/b1/providers/lab/images/0000000001", "cloud-image", None]
    nodes = [filled(Node("small"), id=str(number), image_id=path) for number, path in enumerate(paths)]
    assert images.nodes_by_build(nodes) == {"b1": ["0"]}


def cells(table: Table, number: int = 0) -> dict[str, Any]:
    return dict(zip(keys(table), table.rows[number], strict=True))


RELEASED = ["id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked"]


PEOPLE = "id status age_seconds label provider tenant project job server_id public_ipv4 locked allocated_to hold_reason"


DETAIL = "pool hostname private_ipv4 AZ username connection_port launcher allocated_to hold_job comment user_data"


def test_nodes() -> None:
    """reference/commands 2: the columns of 11.0.0 come first; the token of a pod is not shown."""
    table = node_table([], NodeFacts(), NOW, detail=True)
    assert keys(table)[:21] == [*RELEASED, *DETAIL.split(), "driver_data"]
    assert len(keys(table)) == len(set(keys(table)))
    assert keys(shown(node_table([], NodeFacts(), NOW), Place.TERMINAL)) == [*PEOPLE.split(), "hold_until"]
    one = filled(node(7), external_id="host-1", public_ipv4="192.0.2.1", connection_port={"token": "secret"})
    filled(one, allocated_to=request(1).id, user_data={"project_name": "p"})
    facts = NodeFacts({one.key}, requests={"200-0000000001": request(1)}, lockers={one.key: "Zuul executor e1"})
    table = node_table([one], facts, NOW, detail=True)
    first = ["0000000007", "cloud-1", ["gpu"], "host-1", "192.0.2.1", None, "ready", "00:00:00:50", "locked"]
    assert table.rows[0][:9] == first
    assert shown(node_table([one], facts, NOW), Place.TABLE).rows == [first]
    wanted = {"status": "allocated", "tenant": "t1", "project": "p", "pipeline": "check", "job": "unit"}
    wanted |= {"event_id": "6c1e", "locked_by": "Zuul executor e1", "connection_port": "redacted"}
    wanted |= {"created_time": NOW - 100, "state_time": NOW - 50, "age_seconds": 50.0}  # type: ignore[dict-item]
    assert cells(table).items() >= wanted.items()
    one = node(7)
    one.hold(by="alice@desk", reason="bug 17", seconds=60)
    one.state_time = NOW
    expected = {"hold_by": "alice@desk", "hold_reason": "bug 17", "hold_until": NOW + 60, "locked": "unlocked"}
    assert cells(node_table([one], NodeFacts(), NOW)).items() >= expected.items()
    one.state, one.connection_port = states.USED, 22
    row = cells(node_table([one], NodeFacts(), NOW, detail=True))
    assert (row["hold_reason"], row["connection_port"]) == (None, 22)
