# SPDX-License-Identifier: Apache-2.0
"""Colours of values on a terminal: names that the library ``rich`` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GOOD: Final = "green"
BUSY: Final = "cyan"
WAITING: Final = "yellow"
BAD: Final = "red"
QUIET: Final = "dim"
HEADING: Final = "bold"

#: States of nodes, requests, builds, uploads, pools, providers and hosts.
_STATES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ready", "fulfilled", "running", "up", "current"), GOOD),
    **dict.fromkeys(("allocated", "in-use", "building", "testing", "init", "uploading", "pending", "starting"), BUSY),
    **dict.fromkeys(("requested", "hold", "paused", "draining", "drained", "maintenance", "quarantined"), WAITING),
    **dict.fromkeys(("failed", "aborted", "unavailable", "down", "broken"), BAD),
    **dict.fromkeys(("used", "deleting", "deleted", "stopped"), QUIET),
}
#: Kinds of problems with which requests are served: somebody wanted it so, or launchers differ.
_WEAK: Final = frozenset({"maintenance", "version", "configuration"})


def state(value: Any) -> str:
    """Colour of a state; empty = none."""
    return _STATES.get(value, "") if isinstance(value, str) else ""


def problem(kind: str) -> str:
    """Colour of what needs attention, by the kind of a `plan.attention.StatusProblem`."""
    return WAITING if kind in _WEAK else BAD
