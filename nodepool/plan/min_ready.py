# SPDX-License-Identifier: Apache-2.0
"""How many min-ready requests are missing, or too many? (rules M-1, M-5, M-6, M-8)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR


def missing(wanted: Mapping[str, int], nodes: Iterable[Node], requests: Iterable[NodeRequest]) -> dict[str, int]:
    """Requests to create, by label; below 0 = so many are more than wanted. Labels with the right number are left out.

    :param wanted: label -> ``min-ready``.
    :param nodes: all nodes.
    :param requests: all requests, of every launcher: theirs count, so that several do not overshoot.
    """
    have: Counter[str] = Counter()
    fulfilled: set[str | None] = set()
    for request in requests:
        if request.requestor != MIN_READY_REQUESTOR:
            continue
        if request.state == states.FULFILLED:
            fulfilled.add(request.id)
        elif request.state != states.FAILED:
            have.update(request.node_types)
    for node in nodes:
        # A node of a fulfilled request is free in a moment; the request itself stays a little longer.
        if node.state == states.READY and (node.allocated_to is None or node.allocated_to in fulfilled):
            have.update(label for label in node.type if label in wanted)
    found = {label: max(0, need) - have[label] for label, need in wanted.items()}
    return {label: number for label, number in found.items() if number}
