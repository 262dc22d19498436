# SPDX-License-Identifier: Apache-2.0
"""Two requests that wait for room may each hold nodes that the other one needs. Which of them gives way?

Launchers fill the same limit at the same time, each for its own request: without an answer both would wait for ever.
All find the same one by themselves: the request that is served first keeps what it has.
"""

from __future__ import annotations

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
