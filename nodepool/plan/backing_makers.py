# SPDX-License-Identifier: Apache-2.0
"""Can anybody make a backing node now, or has an operator taken out of service all who could? (T-13)"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nodepool.model.component import PoolComponent
from nodepool.model.maintenance import Maintenance, MaintenanceRecords
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan import maintenance_effect

#: Part of the id of each pool, behind the full name of its host.
_POOL_MARK: Final = "-PoolWorker."


def makers_held(
    backing_label: str,
    pools: Iterable[PoolComponent],
    declined_by: Collection[str],
    records: MaintenanceRecords,
    now: float,
) -> list[Maintenance]:
    """The records that keep every pool from making a backing node; empty = one may make it, or none has the label.

    Launchers of older releases do not know the records: a pool that does not say that it is paused goes on.

    :param pools: all registered pools.
    :param declined_by: ids of pools that declined to make such a node.
    :param now: seconds since the epoch.
    """
    of_label = maintenance_effect.of_subject(records, "label", backing_label, now)
    if of_label is not None:
        return [of_label]
    found: list[Maintenance] = []
    for pool in pools:
        if backing_label not in pool.supported_labels or pool.id in declined_by:
            continue
        record = _of_pool(records, pool, now) if pool.paused else None
        if record is None:
            return []
        if record not in found:
            found.append(record)
    return found


def _of_pool(records: MaintenanceRecords, pool: PoolComponent, now: float) -> Maintenance | None:
    hosts = (pool.hostname, pool.id.partition(_POOL_MARK)[0])
    return maintenance_effect.of_pool(records, hosts, pool.provider_name, pool.name, now)


def reason(label: str, backing_label: str, records: Sequence[Maintenance]) -> Reason:
    """Why requests for a label wait that needs backing nodes.

    :param records: answer of `makers_held`, not empty.
    """
    numbers = {"since": max(record.since for record in records)}
    ends = [record.until for record in records if record.until is not None]
    if ends:
        numbers["until"] = min(ends)
    why = "; ".join(record.text for record in records)
    text = f"label {label} needs a node of label {backing_label}, which nobody makes now: {why}"
    return Reason(ReasonCode.BACKING_HELD, text, numbers)
