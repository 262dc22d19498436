# SPDX-License-Identifier: Apache-2.0
"""Which buttons a page has for operators; what they do is in `nodepool.web.writes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.maintenance import MODES, Mode
from nodepool.web.pages.frame import PageAction
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.observed import Observed

_API: Final = "api/v1"
#: Subjects of one page that have buttons. A filter of the page chooses others.
MOST_SUBJECTS: Final = 50


def of_node(node: Node, *, locked: bool, pending: bool) -> list[PageAction]:
    """Hold and delete, unless it goes already; or the end of what waits for its lock.

    :param pending: a change of the node waits.
    """
    if pending:
        target = f"{_API}/{address('nodes', node.key, 'pending')}/end"
        return [PageAction("Withdraw the pending change", target, needs_reason=False)]
    if node.state in (states.DELETING, states.DELETED):
        return []
    delete = f"{_API}/{address('nodes', node.key, 'delete')}"
    return [
        PageAction("Hold", f"{_API}/{address('nodes', node.key, 'hold')}", may_end=True, may_wait=locked),
        PageAction("Delete", delete, sure=f"Delete node {node.key}", may_wait=locked),
    ]


def of_subject(kind: str, name: str, seen: Observed) -> list[PageAction]:
    """What `MODES` allows for a provider, pool, label, host or launcher; or the end of what was begun."""
    if not name.isprintable() or name in ("", ".", ".."):
        # No address can name it.
        return []
    subject = f"{kind.capitalize()} {name}"
    begun = seen.maintenance_of((kind, one) for one in _names(kind, name))
    if begun:
        word = "Release" if begun[0].mode is Mode.QUARANTINE else "Resume"
        target = f"{_API}/{address('maintenance', kind, begun[0].name)}/end"
        return [PageAction(word, target, needs_reason=False, subject=subject)]
    target = f"{_API}/{address('maintenance', kind, name)}"
    return [
        PageAction(
            mode.value.capitalize(),
            target,
            mode=mode.value,
            may_end=True,
            subject=subject,
            sure="" if mode is Mode.PAUSE else f"{mode.value.capitalize()} {kind} {name}",
        )
        for mode in MODES[kind]
    ]


def of_subjects(kind: str, names: Iterable[str], seen: Observed) -> list[PageAction]:
    """Those of several subjects of one kind, each once, of at most `MOST_SUBJECTS`."""
    chosen = list(dict.fromkeys(names))[:MOST_SUBJECTS]
    return [action for name in chosen for action in of_subject(kind, name, seen)]


def _names(kind: str, name: str) -> list[str]:
    """Names by which a maintenance record may name the subject."""
    return [name, name.rpartition(":")[0].rpartition("@")[2]] if kind == "host" else [name]


def of_image(name: str, *, paused: bool) -> list[PageAction]:
    """Build, and pause or unpause."""
    other = "unpause" if paused else "pause"
    return [PageAction(what.capitalize(), f"{_API}/{address('images', name, what)}") for what in ("build", other)]
