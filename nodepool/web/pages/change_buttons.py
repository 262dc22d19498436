# SPDX-License-Identifier: Apache-2.0
"""Which buttons a page has for operators; what they do is in `nodepool.web.writes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.web.pages.frame import PageAction
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.observed import Observed

_API: Final = "api/v1"


def of_node(node: Node) -> list[PageAction]:
    """Hold and delete, unless it goes already."""
    if node.state in (states.DELETING, states.DELETED):
        return []
    return [
        PageAction("Hold", f"{_API}/{address('nodes', node.key, 'hold')}", may_end=True),
        PageAction("Delete", f"{_API}/{address('nodes', node.key, 'delete')}"),
    ]


def of_subject(kind: str, name: str, seen: Observed) -> list[PageAction]:
    """Pause, or resume, of a provider or label."""
    target = f"{_API}/{address('maintenance', kind, name)}"
    if seen.maintenance_of([(kind, name)]):
        return [PageAction("Resume", f"{target}/end", needs_reason=False)]
    return [PageAction("Pause", target, mode="pause", may_end=True)]


def of_image(name: str, *, paused: bool) -> list[PageAction]:
    """Build, and pause or unpause."""
    other = "unpause" if paused else "pause"
    return [PageAction(what.capitalize(), f"{_API}/{address('images', name, what)}") for what in ("build", other)]
