# SPDX-License-Identifier: Apache-2.0
"""What a static provider tells of its hosts: to commands, and to requests that wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nodepool.driver.static.host_monitor import HostMonitor
from nodepool.model.pool_status import HostStatus
from nodepool.plan.static_hosts import HostId, HostSpec, SlotId
from nodepool.plan.static_room import LabelSlots, waits_for

if TYPE_CHECKING:
    from nodepool.driver.static.slot_index import SlotIndex
    from nodepool.model.reasons import Reason


class HostView:
    """Any thread may ask; nothing blocks.

    :param hosts: the configuration.
    """

    def __init__(self, hosts: Mapping[HostId, HostSpec], monitor: HostMonitor) -> None:
        self._hosts = hosts
        self._monitor = monitor
        #: The changes of the monitor that it has seen, and slots by (pool, label). Replaced as a whole.
        self._slots: tuple[int, Mapping[tuple[str, str], LabelSlots]] = (-1, {})

    def statuses(self, index: SlotIndex | None) -> list[HostStatus]:
        """Every host, in the order of the configuration.

        :param index: of their nodes; None = they are not known.
        """
        return [self._status(spec, index) for spec in self._hosts.values()]

    def _status(self, spec: HostSpec, index: SlotIndex | None) -> HostStatus:
        health = self._monitor.health(spec.id)
        nodes: list[str] = []
        if index is not None:
            nodes = [node.key for slot in range(spec.slots) for node in index.nodes_in(SlotId(spec.id, slot))]
        return HostStatus(
            name=str(spec.id),
            up=health.up,
            text=health.text,
            since=health.since,
            next=self._monitor.next_try(spec.id),
            slots=spec.slots,
            nodes=nodes,
        )

    def wait_reason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """What a request waits for, see `Provider.waitReason`."""
        slots = self._label_slots()
        mine = {label: slots[pool_name, label] for label in labels if (pool_name, label) in slots}
        return waits_for(labels, mine, free)

    def _label_slots(self) -> Mapping[tuple[str, str], LabelSlots]:
        """The slots of each label of each pool; worked out again when a host went or came."""
        # Read first: what changes meanwhile is seen by the next call.
        changes = self._monitor.changes
        if self._slots[0] != changes:
            self._slots = (changes, self._count())
        return self._slots[1]

    def _count(self) -> dict[tuple[str, str], LabelSlots]:
        counted: dict[tuple[str, str], LabelSlots] = {}
        for spec in self._hosts.values():
            up = self._monitor.health(spec.id).up
            for label in spec.labels:
                found = counted.get((spec.pool, label), LabelSlots())
                found = replace(found, total=found.total + spec.slots)
                if up is None:
                    found = replace(found, unchecked=found.unchecked.plus(str(spec.id), spec.slots))
                elif not up:
                    found = replace(found, down=found.down.plus(str(spec.id), spec.slots))
                counted[spec.pool, label] = found
        return counted
