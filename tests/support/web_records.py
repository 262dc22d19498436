# SPDX-License-Identifier: Apache-2.0
"""A snapshot with something of everything that pages show, for tests of pages."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Final

from nodepool.model import states, status
from nodepool.model.event import Event
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.observed import Observed
from nodepool.web.history import History
from nodepool.web.snapshot import WebSnapshot
from tests.support import observed
from tests.support.manual_clock import ManualClock

NOW: Final = observed.NOW
#: What other programs may write into any text: markup, quotes, an escape sequence, one that turns the text, half of a
#: surrogate pair.
HOSTILE: Final = "<script>alert(1)</script>\"'&lt;\x1b[31m\u202e\ud800"
_BUILD: Final = "0123456789abcdef0123456789abcdef"


def full(mark: str = "") -> WebSnapshot:
    """Two launchers, three providers, a static pool, nodes, requests, images, events.

    :param mark: added to each text that is another program's or an operator's.
    """
    label = f"gpu{mark}"
    providers = [f"cloud-1{mark}", f"cloud-2{mark}", f"lab{mark}"]
    seen = Observed(
        now=NOW,
        requests={one.key: one for one in _requests(label, mark)},
        nodes={one.key: one for one in _nodes(label, providers, mark)},
        registered=[_component(provider, label, mark) for provider in providers],
        statuses=[_cloud(providers[0], label, mark), _resting(providers[1], mark), _lab(providers[2], label, mark)],
        maintenance=[
            status.Maintenance(
                "provider", providers[0], status.Mode.PAUSE, f"why{mark}", f"alice{mark}", NOW - 60, NOW + 60
            )
        ],
        locked=frozenset({"0000000001"}),
        events=[_event(mark)],
        launchers=_launchers(mark),
        images=_images(mark),
    )
    return WebSnapshot(1, seen, _builders(mark))


def with_node(number: int, state: str) -> WebSnapshot:
    """A snapshot of this number with one node."""
    node = observed.node(7, "gpu", state=state)
    small = full()
    return replace(small, number=number, observed=replace(small.observed, nodes={node.key: node}))


def many(count: int) -> WebSnapshot:
    """The same with so many nodes, half of them of requests that wait."""
    small = full()
    nodes = {one.key: one for one in (observed.node(number, "gpu") for number in range(1, count + 1))}
    requests = {one.key: one for one in (observed.request(number, "gpu") for number in range(1, count // 2 + 1))}
    return replace(small, observed=replace(small.observed, nodes=nodes, requests=requests))


def kept(mark: str = "") -> History:
    """A request that was fulfilled, and its node, which were removed; the clock of the history stands at `NOW`."""
    history = History()
    ManualClock(NOW).rules("time")
    request, node = observed.request(70, "gpu"), observed.node(90, "gpu", provider="cloud-1")
    request.created_time, request.state_time = NOW - 400, NOW - 400
    request.requestor_data = {"job_name": f"night{mark}", "pipeline_name": "periodic", "project_name": "org/tool"}
    history.note("request", request.key, copy.copy(request))
    node.created_time, node.allocated_to, node.public_ipv4 = NOW - 390, request.key, f"192.0.2.90{mark}"
    for state, ago in ((states.BUILDING, 390), (states.READY, 300), (states.IN_USE, 290), (states.USED, 20)):
        node.state, node.state_time = state, NOW - ago
        history.note("node", node.key, copy.copy(node))
        if state == states.READY:
            request.state, request.state_time, request.nodes = states.FULFILLED, NOW - 295, [node.key]
            history.note("request", request.key, copy.copy(request))
            history.note("request", request.key, None)
    history.note("node", node.key, None)
    history.take_notes()
    return history


def ended(mark: str = "") -> History:
    """A request and a node that ended."""
    history = History()
    ManualClock(NOW).rules("time")
    for kind, one in (("request", _requests(f"gpu{mark}", mark)[0]), ("node", _nodes("gpu", ["a", "b", "c"], mark)[0])):
        for record in (one, None):
            history.note(kind, one.key, record)
    history.take_notes()
    return history


def _requests(label: str, mark: str) -> list[NodeRequest]:
    waits = observed.request(1, label)
    served = observed.request(2, label, state=states.PENDING)
    failed = observed.request(3, f"unknown{mark}", state=states.FAILED)
    for request in (waits, served, failed):
        request.tenant_name = f"t1{mark}"
        request.requestor = f"zuul{mark}"
        request.event_id = f"6c1e{mark}"
        request.requestor_data = {
            "job_name": f"unit{mark}",
            "pipeline_name": f"check{mark}",
            "project_name": f"org/project{mark}",
            "tenant_name": f"t1{mark}",
            "build_set_uuid": f"5d0b{mark}",
        }
    failed.declined_by = [f"gone{mark}"]
    return [waits, served, failed]


def _nodes(label: str, providers: list[str], mark: str) -> list[Node]:
    in_use = observed.node(1, label, state=states.IN_USE, provider=providers[0])
    in_use.allocated_to, in_use.tenant_name = "200-0000000002", f"t1{mark}"
    in_use.external_id, in_use.public_ipv4, in_use.hostname = f"id{mark}", f"192.0.2.1{mark}", f"host{mark}"
    in_use.user_data = {"project_name": f"org/project{mark}"}
    held = observed.node(2, label, state=states.HOLD, provider=providers[0])
    held.comment = f"look{mark}"
    stuck = observed.node(3, label, state=states.DELETING, provider=providers[1])
    stuck.state_time = NOW - 4000
    lab = observed.node(4, label, provider=providers[2])
    return [in_use, held, stuck, lab]


def _component(provider: str, label: str, mark: str) -> status.PoolComponent:
    made = observed.component(provider, label, host=f"l1{mark}")
    made.version = f"12.0.0{mark}"
    return made


def _cloud(provider: str, label: str, mark: str) -> status.PoolStatus:
    text = f"80 of 80 cores in use{mark}"
    return observed.status(
        provider,
        f"l1{mark}",
        driver=f"openstack{mark}",
        version="12.0.0",
        limits=[
            status.LimitStatus("pool", "instances", 20, 18),
            status.LimitStatus("cloud", f"cores{mark}", 80, 72, 8, NOW - 30),
            status.LimitStatus(f"tenant:t1{mark}", "ram", 4096, 4096),
        ],
        labels={f"broken{mark}": status.LabelStatus("label.broken", f"no flavor{mark}", NOW - 500)},
        waiting=[
            status.WaitingStatus(
                [label], None, f"t1{mark}", 1, NOW - 412, "room.cores", text, {"limit": 80, "used": 80}
            )
        ],
        requests=[
            status.RequestStatus("200-0000000002", "launching", "served.launching", f"launches{mark}", {}, NOW - 5)
        ],
        launches=status.LaunchesStatus(
            1, 3, 4, status.FailedLaunch("error.status", f"broke{mark}", NOW - 9, "0000000001", label)
        ),
    )


def _resting(provider: str, mark: str) -> status.PoolStatus:
    told = {"code": "provider.circuit-open", "text": f"HTTP 503{mark}", "since": NOW - 900, "next": NOW + 12}
    return observed.status(provider, f"l1{mark}", driver="openstack", state="unavailable", **told)


def _lab(provider: str, label: str, mark: str) -> status.PoolStatus:
    hosts = [
        status.HostStatus(
            f"zuul@node9{mark}:22", False, f"cannot connect{mark}", NOW - 300, NOW + 30, slots=2, pool="main"
        ),
        status.HostStatus(
            "zuul@node8:22", True, "", NOW - 300, slots=2, nodes=["0000000004"], pool="main", labels=[label]
        ),
        status.HostStatus("zuul@node7:22", True, "", NOW - 300, quarantine=f"disk{mark}", pool="main"),
    ]
    return observed.status(provider, f"l1{mark}", driver="static", hosts=hosts)


def _event(mark: str) -> Event:
    return Event(NOW - 100, f"l1{mark}", "request 200-0000000001", "declined", "label.unknown", f"unknown{mark}", 3)


def _launchers(mark: str) -> list[status.LauncherStatus]:
    first = status.LauncherStatus(
        host=f"l1{mark}",
        pid=17,
        version="12.0.0",
        config_file=f"/etc/nodepool/nodepool.yaml{mark}",
        config="9f3c",
        since=NOW - 7200,
        servers=f"zk:2281{mark}",
        pools=[f"cloud-1{mark}/main"],
        absent=[status.AbsentProvider(f"cloud-3{mark}", "openstack", f"no cloud{mark}", NOW - 60, NOW + 60)],
        tenant_limits={f"t1{mark}": {"instances": 5, f"cores{mark}": 20}},
        reload=status.ReloadStatus(NOW - 30, False, f"line 3{mark}"),
        maintenance=f"drained{mark}",
        events=[_event(mark)],
    )
    return [first, status.LauncherStatus(host="l2", pid=18, version="11.9.0", config="aaaa", since=NOW - 60)]


def _builders(mark: str) -> status.BuilderStatus:
    name = f"debian{mark}"
    return status.BuilderStatus(
        builds={f"{name}/{_BUILD}": status.BuildStatus(f"apt-get{mark}", 600.0)},
        uploads={f"{name}/{'f' * 32}/cloud-1{mark}/0000000002": status.UploadStatus(41.5, 1e6, 2e9)},
    )


def _images(mark: str) -> ImagesView:
    name, provider = f"debian{mark}", f"cloud-1{mark}"
    building = ImageBuild(name, _BUILD)
    building.state, building.state_time = states.BUILDING, NOW - 100
    ready = ImageBuild(name, "f" * 32)
    ready.state, ready.state_time = states.READY, NOW - 5000
    for build in (building, ready):
        build.builder, build.formats = f"b1{mark}", ["qcow2"]
    uploads = []
    for number, state in ((1, states.READY), (2, states.UPLOADING)):
        record = ImageUpload(name, "f" * 32, provider, f"{number:010}")
        record.state, record.state_time = state, NOW - 50
        record.external_id, record.external_name = f"id{mark}", f"name{mark}"
        uploads.append(UploadView(record.key, record, NOW - 50))
    builds = {
        _BUILD: BuildView(_BUILD, building, NOW - 100, locked=True),
        "f" * 32: BuildView("f" * 32, ready, NOW - 5000, uploads={provider: tuple(uploads)}),
        "0" * 32: BuildView("0" * 32, None),
    }
    return ImagesView({name: ImageView(name, paused=True, build_requested=NOW - 20, build_locked=True, builds=builds)})
