# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a znode: it is refused with `InvalidRecord`, or everything that we do with a record can be done.

That includes what comes long after reading: copies, decisions, writing it again, tables, metrics. An error of another
kind would end a pass of a worker, or keep a cache from becoming complete, again and again. And what stands where.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodepool.driver.metastatic.backing import BackingData, driver_data, place_of
from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import FORMATS, render
from nodepool.listing.terminal import show
from nodepool.metrics.catalog import LAUNCH
from nodepool.metrics.registry import Series
from nodepool.metrics.reports import node_gauges, request_gauges
from nodepool.model.image import ImageBuild, ImagesView, ImageUpload
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.record import InvalidRecord
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolComponent
from nodepool.plan.images import (
    BuildHistory,
    LocalBuild,
    OwnBuilds,
    RemoveBuild,
    UploadHistory,
    WantedImage,
    WantedImages,
    WantedUpload,
    build_due,
    choose_rollback,
    judge_files,
    judge_images,
    next_upload,
    overtaken,
    uploads_due,
)
from nodepool.plan.images import observe_builds as observe_builds
from nodepool.plan.images import observe_uploads as observe_uploads
from nodepool.plan.launch import judge_age, judge_unlocked, missing, reset_lost_request
from nodepool.plan.static import decide
from nodepool.plan.triage import PoolInfo, RequestKind, RequestQueue, screen
from nodepool.zk.caches import ImageTree, Kind, build, kind, parts, upload
from nodepool.zk.components import entry_id
from nodepool.zk.images import Unusable, check, problem_of, sort_out
from nodepool.zk.paths import MAX_DEPTH, EmptyRecord, contender_sequence, decode, encode, is_name
from tests.support.odd_json import TRAPS, records
from tests.support.terminal import TerminalStream

NOW = 1_800_000_000.0
NODE: dict[str, Any] = {
    **Node("small").to_dict(NOW),
    "state": "ready",
    "provider": "cloud",
    "pool": "main",
    "hostname": "h1",
    "resources": {"cores": 1, "ram": 2.5},
    "user_data": BackingData("o", "small", 2, False, NOW, (None, None)).encode(),
    "driver_data": driver_data({"nodepool_node_id": "1"}, "0000000003", 1, "0000000007"),
}
REQUEST: dict[str, Any] = {**NodeRequest().to_dict(NOW), "node_types": ["small"], "requestor": "zuul"}
POOL: dict[str, Any] = {**PoolComponent("host", "1").to_dict(), "id": "host-Pool-1", "provider_name": "cloud"}
BUILD: dict[str, Any] = {**ImageBuild("debian", "1").to_dict(NOW), "state": "ready", "builder": "b", "formats": "raw"}
UPLOAD: dict[str, Any] = {**ImageUpload("debian", "1", "cloud", "1").to_dict(NOW), "state": "ready", "external_id": "i"}
READERS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "node": (NODE, lambda data: Node.from_dict(data, "0000000001")),
    "request": (REQUEST, lambda data: NodeRequest.from_dict(data, "200-0000000001")),
    "build": (BUILD, lambda data: ImageBuild.from_dict(data, "debian", "1")),
    "upload": (UPLOAD, lambda data: ImageUpload.from_dict(data, "debian", "1", "cloud", "0000000001")),
}
MORE_KEYS = ["ssh_port", "hold_expiration", "tenant_name", "builder_id", "shell_type", "model_api", "rolled_back"]
fuzz = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def shown(table: Any) -> None:
    for form in FORMATS:
        render(table, form).encode("utf-8", "backslashreplace")
    show(table, None, TerminalStream())
    assert all(line.isprintable() for line in render(table).splitlines())


def refused(error: InvalidRecord) -> None:
    """It goes into the log."""
    assert len(str(error)) < 400


def counted(metrics: Iterable[Series]) -> None:
    """Each name is one name on the wire of statsd."""
    assert not any(set(name) & set("|\r\n") for series in metrics for name in series.statsd_names())


def use_node(node: Node) -> None:
    assert all(isinstance(label, str) for label in [*node.type, *node.host_keys])
    assert node.hold_expiration is None or math.isfinite(node.hold_expiration)
    for request in (None, NodeRequest("200-1")):
        judge_unlocked(node, lambda _, request=request: request)  # type: ignore[misc]
    judge_age(node, NOW, lambda label: 60, 60)
    shown(node_table([node], NodeFacts(), NOW, detail=True))
    use = QuotaInformation.from_resources(node.resources or {})
    use.subtract(QuotaInformation.from_resources(node.resources or {}))
    encode(use.get_resources())
    decide({}, [node], lambda _: False)
    missing({"small": 1}, [node], [])
    counted(node_gauges([node], []))
    counted([LAUNCH.series("ready", str(node.provider), node.az or "", node.requestor or "")])
    place_of(node)
    backing = BackingData.decode(node.user_data)
    assert backing is None or BackingData.decode(backing.encode()) == backing


def use_request(one: NodeRequest) -> None:
    queue = RequestQueue()
    queue.put(one)
    queue.put(NodeRequest.from_dict(REQUEST, "100-0000000002"))
    me = PoolInfo("me", "cloud", frozenset({"small"}), 100, False)
    screen(RequestKind.of(one), me, [me])
    missing({"small": 1}, [], [one])
    reset_lost_request(one.copy(), [])
    request_gauges([one], [])
    shown(request_table([one], NOW))


@pytest.mark.parametrize("name", READERS)
@fuzz
@given(data=st.data())
def test_records(name: str, data: st.DataObject) -> None:
    """Zookeeper 4 to 6: what is needed is there and has its type; the rest is kept."""
    good, read = READERS[name]
    try:
        found = decode(data.draw(records(good, MORE_KEYS)))
        record = read(found)
    except InvalidRecord as error:
        refused(error)
        return
    written = encode(record.copy().to_dict(NOW))
    stored = decode(written)
    assert encode(read(stored).to_dict(NOW)) == written
    assert {key: stored[key] for key in record.extra} == record.extra
    assert set(found) - set(stored) <= {"tenant_name", "builder", "builder_id", "formats", "rolled_back"}
    if isinstance(record, Node):
        use_node(record)
    if isinstance(record, NodeRequest):
        use_request(record)


@fuzz
@given(records(POOL, MORE_KEYS))
def test_registrations(data: bytes) -> None:
    """Zookeeper 7: of launchers and builders only an id and the model API are read."""
    entry_id(data)
    try:
        pool = PoolComponent.from_dict(decode(data), "host0000000001")
    except InvalidRecord as error:
        refused(error)
        return
    encode(pool.to_dict())
    info = PoolInfo(
        pool.id, pool.provider_name, frozenset(pool.supported_labels), pool.priority, pool.paused, pool.name
    )
    me = PoolInfo("me", "cloud", frozenset(), 100, False)
    screen(RequestKind.of(NodeRequest.from_dict(REQUEST)), me, [me, info])
    counted({**node_gauges([], [pool]), **request_gauges([], [pool])})
    shown(label_table([pool]))


IDS = ("b1", "b2", "b3")
WANTED = WantedImages(
    {"debian": WantedImage("debian", frozenset({"raw"}), delete_after_upload=True)},
    {"cloud": {"debian": WantedUpload("raw")}},
)
STAT = SimpleNamespace(version=0, mzxid=1, czxid=1, ctime=1000, mtime=1000)


@settings(fuzz, max_examples=50)
@given(st.lists(st.tuples(records(BUILD, MORE_KEYS), st.none() | records(UPLOAD, MORE_KEYS)), min_size=3, max_size=3))
def test_every_decision_about_images_can_be_taken(stored: list[tuple[bytes, bytes | None]]) -> None:
    """R-17: one image would stop all others. What is written in the end can be written."""
    tree = ImageTree()
    for build_id, (build_data, upload_data) in zip(IDS, stored, strict=True):
        for path, data in (
            (build("debian", build_id), build_data),
            (upload("debian", build_id, "cloud", "1"), upload_data),
        ):
            if data is not None:
                tree.add(path)
                tree.load(path, data, STAT)
    view = tree.view("debian")
    assert view is not None
    assert sorted(view.builds) == sorted(IDS)
    images, wanted = ImagesView({"debian": view}), WANTED.images["debian"]
    for now in (0.0, NOW, 2 * NOW):
        history = observe_builds(BuildHistory(), view, wanted.settings, now)
        due = build_due(wanted, view, history, now, WANTED.users("debian"), OwnBuilds("1", {}))
        assert due.reason.isprintable()
        jobs = uploads_due(WANTED, images, {("debian", number): ("raw",) for number in IDS}, UploadHistory(), now).jobs
        observe_uploads(UploadHistory(), images, now)
        next_upload(jobs, [], 2, 1)
        for found in view.builds.values():
            overtaken(found, view, "cloud")
        for verdict in judge_images(WANTED, images, now):
            if not isinstance(verdict, RemoveBuild) and verdict.record is not None:
                copied = verdict.record.copy()
                copied.state = "deleting"
                json.loads(encode(copied.to_dict(now)))
        local = [LocalBuild("debian", build_id, frozenset({"raw"}), 0.0) for build_id in IDS]
        assert all(one.reason for one in judge_files(local, WANTED, images, now, knows_own_records=True))
    choose_rollback(view, "cloud")


# -- JSON (zookeeper 1)


@given(
    st.binary()
    | st.sampled_from([text.encode() for trap in TRAPS for text in (trap, f'{{"a": [{trap}, {{"b": {trap}}}]}}')])
)
def test_any_bytes(value: bytes) -> None:
    """An object that can be written again, or `InvalidRecord`, with a short text."""
    try:
        data = decode(value)
    except InvalidRecord as error:
        refused(error)
        return
    assert decode(encode(data)) == data


def test_json() -> None:
    """C-8: no data is no record; numbers that older releases wrote for no bound are none, and never written."""
    for nothing in (b"", None):
        with pytest.raises(EmptyRecord):
            decode(nothing)
    odd = [b"{", b"null", b"[]", b'"text"', b"1", b"\xff\xfe{}", "{}".encode("utf-16"), b'{"a": 1} x', b"[" * 100_000]
    for garbage in (*odd, b'{"a": ' + b"1" * 5000 + b"}"):
        with pytest.raises(InvalidRecord):
            decode(garbage)
    data = decode(b'{"c": Infinity, "r": -Infinity, "i": NaN, "v": 1e999, "x": 1.5, "t": "gr\xc3\xbc\xc3\x9fe"}')
    assert data == {"c": None, "r": None, "i": None, "v": None, "x": 1.5, "t": "grüße"}
    for number in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match=r"."):
            encode({"resources": {"cores": number}})
    many = {"a": [{"b": "[{" * 100}] * 100}
    assert decode(encode(many)) == many, "brackets that are not nested"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b": ', b"}")], ids=["lists", "objects"])
def test_depth(opening: bytes, closing: bytes) -> None:
    """A record that was read can be copied and written from any stack; what is too deep for that is refused."""

    def nested(levels: int) -> bytes:
        return b'{"a": ' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"

    found = decode(nested(MAX_DEPTH))
    assert decode(encode(copy.deepcopy(found))) == found
    for levels in (MAX_DEPTH + 1, 300, 900):
        with pytest.raises(InvalidRecord):
            decode(nested(levels))


# -- paths (zookeeper 2)

ROOT = "/nodepool/images/deb"
B1, LAB = f"{ROOT}/builds/b1", f"{ROOT}/builds/b1/providers/lab"
ONE = f"{LAB}/images/0000000001"


def test_image_paths() -> None:
    """Zookeeper 2: an image, build or provider may itself be called as one of the fixed names."""
    found = {
        build("deb", "b1"): Kind.BUILD,
        f"{ROOT}/builds/lock": Kind.LOCK,
        f"{B1}/lock": Kind.LOCK,
        ROOT: Kind.IMAGE,
        f"{LAB}/images/lock": Kind.LOCK,
        f"{ROOT}/builds/lock/x__lock__1": Kind.CONTENDER,
        LAB: Kind.PROVIDER,
        f"{ROOT}/pause": Kind.PAUSE,
        f"{ROOT}/pause/x": Kind.OTHER,
        f"{B1}/x/y": Kind.OTHER,
        ONE: Kind.UPLOAD,
        **{upload("builds", "providers", name, "1"): Kind.UPLOAD for name in ("lock", "images", "builds")},
    }
    assert {path: kind(parts(path)) for path in found} == found


# -- what may be imported (zookeeper 6.4)

RECORD = json.dumps({"state": "ready", "state_time": 1.0})


@pytest.mark.parametrize(
    ("path", "text", "good"),
    [
        *((f"{ROOT}/pause", "", True), (B1, RECORD, True), (ONE, RECORD, True)),
        # Of an older release, and of a newer one.
        (f"{ROOT}/builds/0000000001", '{"state": "building"}', True),
        (B1, '{"state": "failed", "state_time": 1, "formats": "raw", "of_tomorrow": {"a": [1]}}', True),
        *((path, RECORD, False) for path in ("/nodepool/nodes/1", "/nodepool/images", "/nodepool/images//builds/b1")),
        *((f"{ROOT}/builds/{name}", RECORD, False) for name in ("lock", "..")),
        *((f"{LAB}/images/{name}", RECORD, False) for name in ("lock", "x", "\u00b2", "0" * 11, "1", "0001000001")),
        *((ROOT, "", False), (f"{ROOT}/request-build", "", False), (f"{ROOT}/pause", "x", False)),
        *((B1, text, False) for text in ("", "[]", '{"state": "lost"}', {"state": "ready"}, None)),
        (ONE, '{"state": "building"}', False),
    ],
)
def test_backup(path: str, text: Any, good: bool) -> None:
    """Zookeeper 6.4"""
    problem = problem_of(path, text)
    assert (problem is None) is good
    assert problem is None or path in problem or repr(path) in problem


def test_whole_backup() -> None:
    """Zookeeper 6.4: an upload needs its build; the first problem is named, and how many there are."""
    usable, problems = sort_out({ONE: RECORD, f"{ROOT}/pause": ""})
    assert (list(usable), len(problems)) == ([f"{ROOT}/pause"], 1)
    assert sort_out({ONE: RECORD, B1: ""})[0] == {}
    assert sort_out({ONE: RECORD, B1: RECORD})[1] == []
    check({B1: RECORD})
    with pytest.raises(Unusable, match=f"{B1}: .*, and 1 more"):
        check({B1: "", "/x": RECORD})


def test_other_paths() -> None:
    """Zookeeper 2: a name that comes out of JSON is one that ZooKeeper takes, on one level."""
    assert all(map(is_name, ["0000000001", "a b", "ü", "..."]))
    assert not any(map(is_name, ["", ".", "..", "a/b", "a\x00", "a\n", "\ud800", "a\x85b"]))
    for number, name in (("0000000007", "x__lock__0000000007"), ("-2147483648", "x__lock__-2147483648")):
        assert contender_sequence(name) == number
    odd = ["x__lock__7", "x0000000007", "x__lock__0000000007x", "x__lock__00000000001"]
    assert [contender_sequence(name) for name in odd] == [None] * len(odd)
