# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper may say, for tests of `nodepool.plan.explain`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.image import ImagesView, ImageView
from nodepool.model.node import Node
from nodepool.model.record import plain
from nodepool.model.request import NodeRequest
from nodepool.model.status import LauncherStatus, Maintenance, Mode, PoolComponent, PoolStatus, WaitingStatus
from nodepool.plan.observed import Observed
from tests.support.image_views import build, image, upload

NOW = 1763809000.0
FULL = (
    "room.cores",
    "80 of 80 cores in use, 8 more needed",
    {"limit": 80, "used": 80, "needed": 8},
)


def pool_id(provider: str, host: str = "l1") -> str:
    return f"{host}-PoolWorker.{provider}-main-{provider}"


def component(provider: str, *labels: str, host: str = "l1", paused: bool = False) -> PoolComponent:
    made = PoolComponent(host, "11.0.0")
    made.id, made.provider_name, made.name = pool_id(provider, host), provider, "main"
    made.supported_labels = list(labels)
    made.paused = paused
    return made


def status(provider: str, host: str = "l1", **fields: Any) -> PoolStatus:
    told: dict[str, Any] = {"id": pool_id(provider, host), "pool": "main", "state": "running"}
    return PoolStatus(host=host, provider=provider, **{**told, **fields})


def waiting(*labels: str, code: str = FULL[0], text: str = FULL[1], since: float = NOW - 60) -> WaitingStatus:
    return WaitingStatus(labels, None, "t1", 3, NOW - 400, code, text, dict(FULL[2]), since)


def request(number: int = 7, *labels: str, priority: str = "200", **fields: Any) -> NodeRequest:
    """An open request for a ``gpu``.

    :param fields: what is different.
    """
    made = NodeRequest(f"{priority}-{number:010}")
    made.node_types = list(labels or ("gpu",))
    made.created_time = NOW - 412
    made.tenant_name = "t1"
    made.requestor_data = {"job_name": "unit", "pipeline_name": "check"}
    made.event_id = "6c1e"
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def seen(*requests: NodeRequest, **fields: Any) -> Observed:
    return Observed(now=NOW, requests={one.key: one for one in requests}, **fields)


def node(number: int = 1, *labels: str, **fields: Any) -> Node:
    """A ready node with the label ``gpu``.

    :param fields: what is different.
    """
    made = Node(list(labels or ("gpu",)), f"{number:010}")
    made.state, made.provider, made.pool = states.READY, fields.pop("provider", "cloud-1"), "main"
    made.launcher = pool_id(made.provider or "")
    made.created_time, made.state_time = NOW - 100, NOW - 50
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def known(*nodes: Node) -> dict[str, Node]:
    """By id."""
    return {one.key: one for one in nodes}


# What tables say of it.

_TIME = re.compile(r"now([+-]\d+)?")


def timed(value: Any) -> Any:
    """A value of a table: ``now``, ``now-5`` and ``now+5`` are times."""
    if isinstance(value, dict):
        return {name: timed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [timed(item) for item in value]
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else NOW + float(match[1] or 0)


def pool_of(data: Any) -> PoolComponent:
    """A registered pool, such as ``cloud-1 gpu``: provider and labels; a mapping may say more."""
    if isinstance(data, str):
        return component(*data.split())
    more = {name: value for name, value in data.items() if name not in ("provider", "labels")}
    return component(data["provider"], *data["labels"].split(), **more)


def status_of(data: Any) -> PoolStatus:
    """What a pool reports: the name of its provider, or a mapping with what is different about such a pool."""
    data = {"provider": data} if isinstance(data, str) else data
    told = {name: value for name, value in data.items() if name not in ("provider", "host")}
    return PoolStatus.of_record({**plain(status(data["provider"], data.get("host", "l1"))), **timed(told)})


def images_of(builds: list[str]) -> ImagesView:
    """Builds of an image, each with its builder and the providers that have it: ``b1: cloud lab``."""
    views = []
    for number, (builder, _, providers) in enumerate(text.partition(": ") for text in builds):
        uploads = [upload(1, time=NOW + number, provider=provider) for provider in providers.split()]
        views.append(build(f"b{number}", "ready", NOW + number, *uploads))
        record = views[-1].record
        assert record is not None
        record.builder = builder
    return ImagesView({"debian": image(*views) if views else ImageView("debian")})


def world(data: Mapping[str, Any]) -> Observed:
    """What a table says that there is; see `timed`, `pool_of`, `status_of` and `images_of`."""
    told = timed(dict(data))
    requests = [
        request(one.pop("number", 7), *one.pop("labels", "gpu").split(), **one) for one in told.pop("requests", ())
    ]
    nodes = [node(one.pop("number", 1), *one.pop("labels", "gpu").split(), **one) for one in told.pop("nodes", ())]
    records = [Maintenance(**{**one, "mode": Mode(one["mode"])}) for one in told.pop("maintenance", ())]
    fields: dict[str, Any] = {
        "registered": [pool_of(one) for one in told.pop("pools", ())],
        "statuses": [status_of(one) for one in told.pop("statuses", ())],
        "events": [Event(**one) for one in told.pop("events", ())],
        "launchers": [LauncherStatus.of_record(one) for one in told.pop("launchers", ())],
        "images": images_of(told.pop("images", [])),
        "locked": frozenset(told.pop("locked", ())),
        "issued": told.pop("issued", {}),
        "cloud_images": told.pop("cloud_images", {}),
    }
    if "builders" in told:
        fields["builders"] = frozenset(told["builders"])
        fields["builder_providers"] = {name: frozenset(served) for name, served in told["builders"].items() if served}
    return seen(*requests, nodes=known(*nodes), maintenance=records, **fields)


def like(found: Any, expected: Any) -> Any:
    """What is found, as far as it is expected, for a comparison: ``...`` in an expected text stands for any text."""
    if isinstance(expected, dict) and isinstance(found, Mapping):
        return {name: like(found[name], value) if name in found else None for name, value in expected.items()}
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return [like(one, other) for one, other in zip_longest(found, expected)]
    if isinstance(expected, str) and isinstance(found, str):
        pattern = ".*".join(map(re.escape, expected.split("...")))
        return expected if re.fullmatch(pattern, found, re.DOTALL) else found
    return found
