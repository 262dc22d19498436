# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper may say, for tests of `nodepool.plan.explain`."""

from __future__ import annotations

from typing import Any

from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolStatus, WaitingStatus
from nodepool.plan.observed import Observed

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


def request(number: int = 7, *labels: str, state: str = states.REQUESTED, priority: str = "200") -> NodeRequest:
    made = NodeRequest(f"{priority}-{number:010}")
    made.node_types = list(labels or ("gpu",))
    made.state = state
    made.created_time = NOW - 412
    made.tenant_name = "t1"
    made.requestor_data = {"job_name": "unit", "pipeline_name": "check"}
    made.event_id = "6c1e"
    return made


def seen(*requests: NodeRequest, **fields: Any) -> Observed:
    return Observed(now=NOW, requests={one.key: one for one in requests}, **fields)


def node(number: int = 1, *labels: str, state: str = states.READY, provider: str = "cloud-1") -> Node:
    made = Node(list(labels or ("gpu",)), f"{number:010}")
    made.state, made.provider, made.pool = state, provider, "main"
    made.launcher = pool_id(provider)
    made.created_time, made.state_time = NOW - 100, NOW - 50
    return made


def known(*nodes: Node) -> dict[str, Node]:
    """By id."""
    return {one.key: one for one in nodes}
