# SPDX-License-Identifier: Apache-2.0
"""Records of nodes, requests, images and pools: what is read, what is refused, and written (zookeeper 1, 4-7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.model.image import NO_IMAGES, BuildView, ImageBuild, ImageUpload, ImageView, UploadView
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord
from nodepool.model.request import MAX_LABELS, MAX_NAME, NodeRequest, described, origin_of
from nodepool.model.states import NODE_MOVES, NODE_STATES, REQUEST_MOVES, REQUEST_STATES, ImpossibleState
from nodepool.model.status import LauncherComponent, PoolComponent
from tests.support.image_views import build, image, upload
from tests.support.tables import rows, table

READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "node": lambda data: Node.from_dict(data, "0000000001"),
    "request": lambda data: NodeRequest.from_dict(data, "200-0000000007"),
    "pool": lambda data: PoolComponent.from_dict(data, "host0000000001"),
    "build": lambda data: ImageBuild.from_dict(data, "debian", "1"),
    "upload": lambda data: ImageUpload.from_dict(data, "debian", "1", "cloud", "0000000001"),
}
GOOD: dict[str, dict[str, Any]] = table(__file__, "records")


def written(kind: str, record: Any, now: float = 9.0) -> dict[str, Any]:
    found: dict[str, Any] = record.to_dict() if kind == "pool" else record.to_dict(now)
    return found


@pytest.mark.parametrize("kind", GOOD)
def test_round_trip(kind: str) -> None:
    """Nothing is lost: what a newer peer wrote is kept, too; a copy is independent."""
    data = GOOD[kind] if kind == "pool" else {**GOOD[kind], "new_key": {"a": [1]}}
    added = {"nodes": [], "declined_by": [], "reuse": True} if kind == "request" else {}
    record = READERS[kind](data)
    assert written(kind, record) == {**data, **added}
    if kind != "pool":
        copy = record.copy()
        copy.extra["new_key"]["a"].append(2)
        copy.state = "deleting" if kind != "request" else "pending"
        assert written(kind, record) == {**data, **added}


@rows(__file__, "wrong_types")
def test_wrong_types(kind: str, key: str, values: list[Any]) -> None:
    """zookeeper 1: no record; so is one without a state, or a pool without an id."""
    changes = [{key: value} for value in [*values, *([10**400] if key == "state_time" else [])]]
    for data in (*({**GOOD[kind], **change} for change in changes), {}):
        with pytest.raises(InvalidRecord):
            READERS[kind](data)


@rows(__file__, "values_that_are_read")
def test_values_that_are_read(kind: str, data: dict[str, Any], expected: dict[str, Any]) -> None:
    """zookeeper 1, 5, J-10"""
    record = READERS[kind]({"state": "requested" if kind == "request" else "ready", **data})
    assert {name: getattr(record, name) for name in expected} == expected
    if kind == "node" and "connection_port" in expected:
        assert record.to_dict(1.0)["ssh_port"] == expected["connection_port"]


def test_new_records() -> None:
    """What Zuul needs is there; what is not known or reserved is left out (4.2, 5.1, 6.1)."""
    node = Node("small").to_dict(100.5)
    assert node.keys() == GOOD["node"].keys()
    expected = {"state": "init", "state_time": 100.5, "type": ["small"], "created_time": 100.5, "username": "zuul"}
    assert {**node, **expected, "connection_port": 22, "ssh_port": 22, "host_keys": [], "node_properties": {}} == node
    request = NodeRequest().to_dict(5.0)
    assert GOOD["request"].keys() - request.keys() == {"tenant_name"}
    assert (request["state"], request["state_time"], request["created_time"]) == ("requested", 5.0, 5.0)
    login = {"username": None, "python_path": None, "shell_type": None}
    assert ImageBuild("debian").to_dict(3.0) == {"state": "building", "state_time": 3.0, **login}
    built = ImageBuild("debian")
    built.formats = ["vhd", "raw"]
    built.tell(1.23456, 7)
    assert {"formats": "raw,vhd", "duration": 1.235, "size": 7}.items() <= built.to_dict(1.0).items()
    assert ImageUpload("debian", "build", "cloud").to_dict(1.0)["state"] == "uploading"
    assert LauncherComponent("host", "12.0").to_dict()["kind"] == "launcher"


def test_state_time_moves_with_the_state_only() -> None:
    """zookeeper 1: a change sets state_time to now, loading restores the stored one."""
    node = Node.from_dict({"state": "ready", "state_time": 5.0, "provider": "p", "slot": 1, "extra_key": 1})
    node.comment = "x"
    assert node.to_dict(101.0)["state_time"] == 5.0
    node.state = "in-use"
    assert [node.to_dict(now)["state_time"] for now in (102.0, 103.0)] == [102.0, 102.0]
    node.load({"state": "used"})
    assert (node.provider, node.slot, node.comment, node.extra) == (None, None, None, {})
    new = Node("a")
    assert [new.to_dict(now)["created_time"] for now in (7.0, 8.0)] == [7.0, 7.0]


def test_free() -> None:
    """Q-15, J-10: a free ready node counts for no tenant, one that is still to be deleted does."""
    for state, tenant in (("ready", None), ("failed", "tenant")):
        node = Node.from_dict(
            {"state": state, "allocated_to": "200-1", "tenant_name": "tenant", "request_event_id": "E"}
        )
        assert (node.request_event_id, node.extra) == ("E", {})
        node.free()
        assert (node.allocated_to, node.tenant_name, node.request_event_id) == (None, tenant, None)
        assert "request_event_id" not in node.to_dict(1.0), "without one it has the keys of Nodepool 11 only"


def test_hold() -> None:
    """The reason and the end are fields that released launchers know; who it was is a key that readers ignore."""
    node = Node.from_dict({"state": "ready", "state_time": 1.0, "something_new": 1}, "0000000001")
    assert (node.hold_by, node.hold_until) == (None, None)
    node.hold(by="alice@desk", reason="bug 17", seconds=60)
    data = node.to_dict(100.0)
    expected = {"state": "hold", "state_time": 100.0, "comment": "bug 17", "hold_expiration": 60}
    assert {**data, **expected, "hold_by": "alice@desk", "something_new": 1} == data
    again = Node.from_dict(data, "0000000001")
    assert (again.hold_by, again.hold_until) == ("alice@desk", 160.0)
    again.hold(by="bob", reason=None, seconds=None)
    assert (again.hold_by, again.comment, again.hold_expiration) == ("bob", "bug 17", 60)
    for value in (0, -1, 10**400):
        again.hold(by="alice", reason=None, seconds=value)
        assert again.hold_until is None


# -- moves between states (4.3, 5.2)


@pytest.mark.parametrize(
    ("kind", "moves", "names"), [(Node, NODE_MOVES, NODE_STATES), (NodeRequest, REQUEST_MOVES, REQUEST_STATES)]
)
def test_only_moves_of_the_table(
    kind: type[Node | NodeRequest], moves: dict[tuple[str, str], str], names: tuple[str, ...]
) -> None:
    """X-1: a move of the table is made, the same state again too, any other changes nothing."""
    assert {name for move in moves for name in move} <= set(names)
    for before, after in ((before, after) for before in names for after in names):
        record = kind(id="0000000007")
        record.load({"state": before})
        record.version = 3
        if before == after or (before, after) in moves:
            record.state = after
            assert record.state == after
            continue
        with pytest.raises(ImpossibleState, match=f"{kind.__name__} 0000000007: {before} cannot become {after}"):
            record.state = after
        assert record.state == before


# -- for whom a request is (J-3)


@rows(__file__, "origins")
def test_origin(data: Any, tenant: str | None, expected: dict[str, str]) -> None:
    """J-3: records of other programs hold anything."""
    request = NodeRequest("200-1")
    request.requestor_data, request.tenant_name, request.node_types = data, tenant, ["gpu", "small", "gpu"]
    assert origin_of(request) == expected
    assert described(request).startswith("2 x gpu, small" + ("; " if expected else ""))
    request.node_types = [str(number) for number in range(MAX_LABELS + 3)]
    request.requestor_data = {"job_name": "a\nb" + "x" * 200}
    assert f"{MAX_LABELS - 1}, 3 more labels" in described(request)
    assert origin_of(request)["job"] == ("a b" + "x" * 200)[:MAX_NAME]


# -- views of images (6.2)


def test_image_views() -> None:
    """The current upload is the ready one with the greatest state time over all builds."""
    first = build("b1", "ready", 1.0, upload(1, time=50.0), upload(2, time=99.0, provider="other"))
    second = build("b2", "ready", 2.0, upload(1, time=40.0), upload(2, "failed", time=60.0))
    view = image(build("b4", "failed", 9.0), first, second, build("bad", None), build("b3", "ready", 1.5))
    assert [found.id for found in view.ready_builds()] == ["b2", "b3", "b1"]
    assert [found.id for found in view.builds_in("failed")] == ["b4"]
    current = view.current_upload("cloud")
    assert current is not None
    assert (current.build_id, int(current.key)) == ("b1", 1)
    assert [found.build_id for found in view.ready_uploads("cloud")] == ["b1", "b2"]
    assert (view.current_upload("third"), first.upload_count, len(list(second.all_uploads()))) == (None, 2, 2)
    bad = BuildView("b1", None, uploads={"cloud": (UploadView("1", None),)})
    assert (bad.upload_count, list(bad.all_uploads()), bad.ready_uploads("cloud")) == (1, [], [])
    assert (bad.state, bad.time) == (None, 0.0)
    with_one = NO_IMAGES.with_image("debian", view)
    without = with_one.with_image("debian", None)
    assert (list(with_one.images), list(without.images), list(NO_IMAGES.images)) == (["debian"], [], [])
    assert without.image("fedora") == ImageView("fedora")


def test_moves_that_matter() -> None:
    """X-1: a node that was used, or that is to go, is given to no request; every node can go; so can Zuul."""
    never = ["ready building", "deleting ready", "deleting in-use", "used ready", "used in-use", "failed ready"]
    never += ["hold ready", "deleted ready", "building init"]
    assert not {tuple(move.split()) for move in never} & NODE_MOVES.keys()
    assert {("ready", "in-use"), ("in-use", "used"), ("in-use", "hold")} <= NODE_MOVES.keys()
    for after in ("deleting", "deleted"):
        assert all(before == after or (before, after) in NODE_MOVES for before in NODE_STATES)


def test_null_never_replaces_a_tenant() -> None:
    """zookeeper 4.2: if the key is present Zuul takes it. Other data of a requestor comes back unchanged."""
    assert "tenant_name" not in NodeRequest.from_dict({"state": "requested", "tenant_name": None}).to_dict(1.0)
    for value in (None, 5, "x", [{"a": 1}], {"a": None}):
        asked = NodeRequest.from_dict({**GOOD["request"], "requestor_data": value})
        assert asked.to_dict(1.0)["requestor_data"] == value


def test_for_released_drivers() -> None:
    """Methods of 11.0.0."""
    data = Node("small").to_dict(5.0)
    node = Node.fromDict(data, "0000000001")
    assert node.toDict() == data
    node.updateFromDict({**data, "az": "z1"})
    assert (node.id, node.az) == ("0000000001", "z1")
    request = NodeRequest.fromDict({**NodeRequest().to_dict(5.0), "jenkins_label": "x"}, "500-1")
    assert (request.toDict()["jenkins_label"], request.stat) == ("x", None)
    request.updateFromDict({"state": "requested", "node_types": ["a", "b"], "requestor": "zuul", "tenant_name": "acme"})
    assert (request.toDict()["created_time"], request.to_dict(7.0)["created_time"]) == (None, 7.0)
    request.version, request.mzxid = 3, 99
    assert request.stat == (3, 99)
    safe = request.getSafeAttributes()
    text = "{request.id} {request.labels} {request.requestor} {request.tenant_name} {request.event_id}"
    assert text.format(request=safe) == "500-1 ['a', 'b'] zuul acme None"


def test_moves_begin_at_what_is_stored() -> None:
    """What was set, but not written, is replaced; a new record may begin in any state; what others stored is read."""
    node = Node("small", id="0000000007")
    node.state = "used"
    node.state = "ready"
    node.load({"state": "building"})
    node.version = 3
    for state in ("ready", "aborted", "ready"):
        node.state = state
    node.to_dict(1.0)
    with pytest.raises(ImpossibleState):
        node.state = "building"
    with pytest.raises(TypeError, match="'broken' is not a valid state"):
        node.state = "broken"


def test_amounts_of_a_pool() -> None:
    """An amount that is no number does not hide the pool."""
    data = {**GOOD["pool"], "capacity": {"": "many", "a": 3, "b": float("inf"), "c": True}, "limits": ["cores"]}
    pool = PoolComponent.from_dict(data, "host0000000001")
    assert (pool.capacity, pool.limits) == ({"a": 3.0}, {})
