# SPDX-License-Identifier: Apache-2.0
"""Are instances gone that lists do not show any more? Their deletions are operations, and those say it (GC-9, CM-7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.gce.names import record_id, zone_and_name
from nodepool.driver.gce.types import GceRecord, Operation
from nodepool.exceptions import LaunchError

#: So many instances of a zone are asked for one by one: the answer 404 is the proof.
FEW: Final = 1
#: Instances that one list of operations proves to be gone.
MANY: Final = 250
#: So many operations of a zone are looked at, the newest first: two pages.
OPERATIONS: Final = 1000


class DeletionCalls(Protocol):
    """What is used of `nodepool.driver.gce.client.ComputeEngine`."""

    def instance(self, zone: str, name: str) -> GceRecord: ...

    def operations(self, zone: str, kind: str, what: str) -> Iterable[Operation]: ...


class DeletionProof:
    """For instances that were in lists, whose deletion was accepted, and that a later list lacks.

    The newest deletion of each says whether it has ended well. For many instances of a zone that is one call instead of
    one for each. All methods block; any thread may call them.
    """

    def __init__(self, provider: str, calls: DeletionCalls) -> None:
        self._provider = provider
        self._calls = calls

    def look(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """For `nodepool.driver.framework.batches.Batches`: NotFound for each that is gone; nothing = not known yet.

        :param take: gives the ids of instances in lists.
        """
        zones: dict[str, list[str]] = {}
        for one in take():
            zones.setdefault(zone_and_name(one)[0], []).append(one)
        found: dict[str, Exception] = {}
        for zone, ids in zones.items():
            try:
                found |= self._look_at(zone, ids)
            except LaunchError as error:
                # The other zones may answer.
                found |= dict.fromkeys(ids, error)
        return found

    def _look_at(self, zone: str, ids: list[str]) -> Mapping[str, Exception]:
        if len(ids) <= FEW:
            return {one: error for one in ids if (error := self._ask(one)) is not None}
        operations = self._calls.operations(zone, "delete", "listing deletions")
        return {
            one: CloudNotFound(f"Provider {self._provider}: {one} is gone, its deletion has ended", status=404)
            for one in ended_well(ids, itertools.islice(operations, OPERATIONS))
        }

    def _ask(self, one: str) -> Exception | None:
        try:
            self._calls.instance(*zone_and_name(one))
        except LaunchError as error:
            return error
        return None


def ended_well(ids: Iterable[str], operations: Iterable[Operation]) -> set[str]:
    """Those of some instances whose newest deletion has ended without an error. Pure.

    :param operations: deletions, the newest first; read until all instances were found.
    """
    missing, found = set(ids), set()
    for operation in operations:
        one = record_id(operation.zone, operation.target)
        if one not in missing:
            continue
        missing.discard(one)
        if operation.done and not (operation.data.get("error") or operation.data.get("httpErrorStatusCode")):
            found.add(one)
        if not missing:
            break
    return found
