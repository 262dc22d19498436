# SPDX-License-Identifier: Apache-2.0
"""What a static provider reports of its hosts, to commands and to requests that wait for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nodepool.driver.static.host_monitor import HostMonitor
from nodepool.driver.static.quarantines import cause
from nodepool.model.pool_status import HostStatus
from nodepool.plan.static_hosts import HostId, HostSpec, SlotId
from nodepool.plan.static_room import LabelSlots, waits_for

if TYPE_CHECKING:
    from nodepool.driver.static.slot_index import SlotIndex
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.reasons import Reason

#: (pool, label) -> slots
_Slots = Mapping[tuple[str, str], LabelSlots]


class HostView:
    """Any thread may ask; nothing blocks.

    :param hosts: the configuration.
    """

    def __init__(self, hosts: Mapping[HostId, HostSpec], monitor: HostMonitor) -> None:
        self._hosts = hosts
        self._monitor = monitor
        #: Hosts that are out of service, as of the provider's last pass. Replaced as a whole.
        self.held: Mapping[HostId, Maintenance] = {}
        #: As `has_news` saw it last.
        self._told: tuple[int, Mapping[HostId, Maintenance]] = (0, self.held)
        #: What was seen of the monitor and of `held`, and slots by (pool, label). Replaced as a whole.
        self._slots: tuple[int, Mapping[HostId, Maintenance] | None, _Slots] = (-1, None, {})

    def statuses(self, index: SlotIndex | None) -> list[HostStatus]:
        """Every host, in the order of the configuration.

        :param index: of their nodes; None = they are not known.
        """
        return [self._status(spec, index) for spec in self._hosts.values()]

    def _status(self, spec: HostSpec, index: SlotIndex | None) -> HostStatus:
        health, record = self._monitor.health(spec.id), self.held.get(spec.id)
        nodes: list[str] = []
        if index is not None:
            nodes = [node.key for slot in range(spec.slots) for node in index.nodes_in(SlotId(spec.id, slot))]
        return HostStatus(
            name=str(spec.id),
            up=health.up,
            text=health.text,
            since=health.since if record is None else record.since,
            next=self._monitor.next_try(spec.id) if record is None else record.until,
            quarantine=None if record is None else cause(record),
            slots=spec.slots,
            nodes=nodes,
            pool=spec.pool,
            labels=spec.labels,
        )

    def has_news(self) -> bool:
        """Did a host go or come since the call before? Only for the provider's thread."""
        seen, self._told = self._told, (self._monitor.changes, self.held)
        return seen[0] != self._told[0] or seen[1] is not self._told[1]

    def wait_reason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """What a request waits for, see `Provider.waitReason`."""
        slots = self._label_slots()
        mine = {label: slots[pool_name, label] for label in labels if (pool_name, label) in slots}
        return waits_for(labels, mine, free)

    def _label_slots(self) -> _Slots:
        """The slots of each label of each pool; worked out again when a host went or came."""
        # Read first: what changes meanwhile is seen by the next call.
        changes, held = self._monitor.changes, self.held
        seen = self._slots
        if seen[0] != changes or seen[1] is not held:
            seen = self._slots = (changes, held, self._count(held))
        return seen[2]

    def _count(self, held: Mapping[HostId, Maintenance]) -> _Slots:
        counted: dict[tuple[str, str], LabelSlots] = {}
        for spec in self._hosts.values():
            up = self._monitor.health(spec.id).up
            for label in spec.labels:
                found = counted.get((spec.pool, label), LabelSlots())
                found = replace(found, total=found.total + spec.slots)
                if spec.id in held:
                    found = replace(found, quarantined=found.quarantined.plus(str(spec.id), spec.slots))
                elif up is None:
                    found = replace(found, unchecked=found.unchecked.plus(str(spec.id), spec.slots))
                elif not up:
                    found = replace(found, down=found.down.plus(str(spec.id), spec.slots))
                counted[spec.pool, label] = found
        return counted
