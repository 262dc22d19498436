# SPDX-License-Identifier: Apache-2.0
"""When is a static host checked again after a failure, and when is it quarantined? (rules S-4, S-16)"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nodepool.plan.backoff import Backoff
from nodepool.quick_dataclass import dataclass

#: From a check that failed to the next one.
RETRY: Final = Backoff(1.0, 60.0)
#: From the beginning of a quarantine to the next check: longer with each return of the host that did not last.
QUARANTINE: Final = Backoff(60.0, 3600.0)
#: A host that fails again so soon after its return flaps: its row of failures goes on.
FLAP_SECONDS: Final = 600.0
#: From one message that a host is down to the next one.
TELL_AGAIN: Final = Backoff(600.0, 3600.0)
#: A provider with no more hosts than this has no majority that says anything.
FEW_HOSTS: Final = 3


@dataclass(frozen=True)
class HostHealth:
    """What the checks of a host have shown.

    :param up: did the last one succeed? None = there was none.
    :param text: why it is not up.
    :param since: when ``up`` became what it is, in seconds since the epoch.
    :param failures: failed checks since then.
    :param row: failures in a row; it goes on if the host fails again within `FLAP_SECONDS` of its return.
    :param returns: how often it came back within this row after it had been quarantined.
    """

    up: bool | None = None
    text: str = ""
    since: float = 0.0
    failures: int = 0
    row: int = 0
    returns: int = 0


def after_failure(before: HostHealth, text: str, now: float, quarantine_after: int) -> HostHealth:
    """A check failed.

    :param now: seconds since the epoch.
    :param quarantine_after: length of a row that quarantines a host; 0 = none does.
    """
    if before.up is False:
        return replace(before, text=text, failures=before.failures + 1, row=before.row + 1)
    flaps = before.up is True and before.row > 0 and now - before.since < FLAP_SECONDS
    if not flaps:
        return HostHealth(False, text, now, failures=1, row=1)
    returns = before.returns + 1 if is_quarantined_by(before, quarantine_after) else before.returns
    return HostHealth(False, text, now, failures=1, row=before.row + 1, returns=returns)


def after_success(before: HostHealth, now: float) -> HostHealth:
    """A check succeeded. :param now: seconds since the epoch."""
    if before.up:
        return before
    return HostHealth(True, "", now, row=before.row, returns=before.returns)


def is_quarantined_by(health: HostHealth, quarantine_after: int) -> bool:
    """Is a row of failures so long that the host is quarantined?"""
    return 0 < quarantine_after <= health.row


def quarantine_pause(health: HostHealth, now: float) -> float:
    """Seconds until a host that failed just now is checked again, if it is quarantined.

    As long as it has been down already, between the bounds of `QUARANTINE`.

    :param now: seconds since the epoch.
    """
    return min(QUARANTINE.longest_seconds, max(QUARANTINE.pause(health.returns + 1), now - health.since))


def is_our_network(down: int, hosts: int) -> bool:
    """Is it likely that the launcher has lost its network? Then no host is quarantined for it.

    :param down: hosts of the provider that failed their last check. ``hosts``: all that were checked.
    """
    return hosts > FEW_HOSTS and down * 2 > hosts
