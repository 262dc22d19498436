# SPDX-License-Identifier: Apache-2.0
"""`ChangedRecords`: which records changed since somebody asked last, so that viewers are notified of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

#: Of more changed records of one kind only the number is known.
MOST_IDS: Final = 1000


class RecordKind(enum.StrEnum):
    """What viewers can be told of."""

    NODES = "nodes"
    REQUESTS = "requests"
    #: Pools, their limits and what is held or paused.
    PROVIDERS = "providers"
    LAUNCHERS = "launchers"
    IMAGES = "images"


class ChangedRecords:
    """Written by the connection thread, taken by one other. Each operation on a set is atomic."""

    def __init__(self) -> None:
        self._ids: dict[RecordKind, set[str]] = {kind: set() for kind in RecordKind}

    def note(self, kind: RecordKind, record_id: str) -> None:
        """A record came, changed or went; '' = any may have. Does not block."""
        ids = self._ids[kind]
        if len(ids) < MOST_IDS:
            ids.add(record_id)

    def take(self) -> Mapping[RecordKind, frozenset[str]]:
        """The kinds of which something changed, each with the ids that are known."""
        taken: dict[RecordKind, frozenset[str]] = {}
        for kind, ids in self._ids.items():
            found = set()
            # One by one: what is noted meanwhile is found now or the next time.
            while ids:
                found.add(ids.pop())
            if found:
                taken[kind] = frozenset(found)
        return taken
