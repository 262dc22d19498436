# SPDX-License-Identifier: Apache-2.0
"""Two requests that wait for room may each hold nodes that the other one needs. Which of them is given back?

Launchers fill the same limit at the same time, each for its own request: without an answer both would wait for ever.
All find the same one by themselves: the request that is served first keeps what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

#: How long a request waits with nodes in its hands until it looks whether it is in the way of another one.
PATIENCE_SECONDS: Final = 10.0


def stands_before(
    mine: NodeRequest,
    provider: str,
    pool: str | None,
    nodes: Iterable[Node],
    request: Callable[[str], NodeRequest | None],
) -> NodeRequest | None:
    """A request that comes before this one, and waits for room with nodes in its hands, too; None = there is none.

    Limits of tenants play no part: nobody waits for them with nodes in his hands.

    :param provider: that this request waits for.
    :param pool: whose own limit it waits for; None = for something that the pools of the provider share.
    :param nodes: all nodes.
    :param request: looks up a request by id; None = it does not exist.
    """
    held: dict[str, list[Node]] = {}
    for node in nodes:
        shares = node.provider == provider and pool in (None, node.pool)
        if node.allocated_to is not None and node.allocated_to != mine.id and shares:
            held.setdefault(node.allocated_to, []).append(node)
    first: NodeRequest | None = None
    for request_id, its_nodes in held.items():
        other = request(request_id)
        if other is None or other.state != states.PENDING or other.order_key >= mine.order_key:
            continue
        waits = len(its_nodes) < len(other.node_types) and all(node.state == states.READY for node in its_nodes)
        if waits and (first is None or other.order_key < first.order_key):
            first = other
    return first


def missing_labels(request: NodeRequest, its_nodes: Iterable[Node]) -> Counter[str]:
    """What a request still lacks. A node with several labels stands for the first one that is lacking."""
    missing = Counter(request.node_types)
    for node in its_nodes:
        label = next((label for label in node.type if missing[label] > 0), None)
        if label is not None:
            missing[label] -= 1
    return +missing


def in_the_way(first: NodeRequest, its_nodes: Iterable[Node], mine: Iterable[Node]) -> list[Node]:
    """Of the nodes of a request that is given back, those whose room the first one needs, because it cannot use them.

    Freed, they would stay, and both would go on waiting. At most as many as it lacks.

    :param its_nodes: at least one: they tell the pool that serves it.
    """
    its_nodes = list(its_nodes)
    pool = its_nodes[0].pool
    missing = missing_labels(first, its_nodes)
    useless: list[Node] = []
    for node in mine:
        label = next((label for label in node.type if missing[label] > 0), None)
        if first.reuse and node.pool == pool and label is not None:
            missing[label] -= 1
        else:
            useless.append(node)
    return useless[: missing.total()]
