# SPDX-License-Identifier: Apache-2.0
"""Which slots could serve a request, and what keeps it waiting? (rules S-11, S-15)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.node_choice import can_match
from nodepool.quick_dataclass import dataclass

#: Hosts that a text names; of others it says how many there are.
MAX_NAMED: Final = 3


@dataclass(frozen=True)
class SlotGroup:
    """Slots of hosts that cannot be used, for one cause.

    :param hosts: names of the hosts.
    """

    slots: int = 0
    hosts: tuple[str, ...] = ()

    def plus(self, host: str, slots: int) -> SlotGroup:
        """This group with the slots of one more host."""
        return SlotGroup(self.slots + slots, (*self.hosts, host))

    @property
    def names(self) -> str:
        """The hosts, for an operator."""
        more = len(self.hosts) - MAX_NAMED
        named = ", ".join(self.hosts[:MAX_NAMED])
        return f"{named} and {more} more" if more > 0 else named


@dataclass(frozen=True)
class LabelSlots:
    """The slots of a pool with one label.

    :param total: all of them. ``down``: of hosts that failed their last check. ``quarantined``: of hosts that are taken
        out of service. ``unchecked``: of hosts whose first check has not ended.
    """

    total: int = 0
    down: SlotGroup = SlotGroup()
    quarantined: SlotGroup = SlotGroup()
    unchecked: SlotGroup = SlotGroup()


def too_few_slots(labels: Sequence[str], offers: Sequence[Collection[str]]) -> Reason | None:
    """Why a pool can never serve a request, even if all its hosts were free; None = it can.

    :param labels: one for each wanted node.
    :param offers: labels of each slot of the pool.
    """
    if can_match(labels, offers):
        return None
    wanted = Counter(labels)
    short = next(_short_subsets(wanted, offers), tuple(sorted(wanted)))
    needed = sum(wanted[label] for label in short)
    slots = _slots_with(short, offers)
    nodes, what = _count(needed, "node"), "label" if len(short) == 1 else "labels"
    alone = " with any of them" if len(short) > 1 else ""
    verb = "is" if needed == 1 else "are"
    text = f"{nodes} of {what} {', '.join(short)} {verb} needed, this pool has {_count(slots, 'slot')}{alone}"
    return Reason(ReasonCode.ROOM_STATIC, text, {"needed": needed, "slots": slots})


def _short_subsets(wanted: Counter[str], offers: Sequence[Collection[str]]) -> Iterator[tuple[str, ...]]:
    """Labels that together have fewer slots than are wanted of them; no more than two at a time are tried."""
    for size in (1, 2):
        for subset in combinations(sorted(wanted), size):
            if _slots_with(subset, offers) < sum(wanted[label] for label in subset):
                yield subset


def _slots_with(labels: Collection[str], offers: Sequence[Collection[str]]) -> int:
    return sum(1 for offer in offers if any(label in offer for label in labels))


def waits_for(labels: Sequence[str], slots: Mapping[str, LabelSlots], free: Mapping[str, int]) -> Reason:
    """What a request waits for that only ready nodes can serve.

    :param labels: one for each wanted node.
    :param slots: of the pool, by label.
    :param free: ready nodes that nobody has, by label.
    """
    wanted = Counter(labels)
    short = [label for label in sorted(wanted) if free.get(label, 0) < wanted[label]]
    if not short:
        named = ", ".join(f"{count} {label}" for label, count in sorted(wanted.items()))
        return Reason(ReasonCode.WAIT_READY_NODE, f"the free slots are too few for {named} together", {})
    found = [
        _waits_for_one(label, wanted[label], slots.get(label, LabelSlots()), free.get(label, 0)) for label in short
    ]
    return Reason(ReasonCode.WAIT_READY_NODE, "; ".join(reason.text for reason in found), found[0].numbers)


def _waits_for_one(label: str, needed: int, slots: LabelSlots, free: int) -> Reason:
    groups = [
        ("down", slots.down),
        ("quarantined", slots.quarantined),
        ("not checked yet", slots.unchecked),
    ]
    in_use = max(0, slots.total - free - sum(group.slots for _, group in groups))
    parts = [f"{_are(count)} {how}" for count, how in ((free, "free"), (in_use, "in use")) if count]
    parts += [f"{_are(group.slots)} {how} ({group.names})" for how, group in groups if group.slots]
    head = f"no slot with label {label} is free" if needed == 1 else f"{needed} slots with label {label} are needed"
    numbers = {
        "needed": needed,
        "slots": slots.total,
        "free": free,
        "in_use": in_use,
        "down": slots.down.slots,
        "quarantined": slots.quarantined.slots,
    }
    text = f"{head}: of {slots.total}, {_listed(parts)}" if parts else f"{head}: this pool has none"
    return Reason(ReasonCode.WAIT_READY_NODE, text, numbers)


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
