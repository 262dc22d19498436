# SPDX-License-Identifier: Apache-2.0
"""How much of a pool's status is stored: lists are cut until it fits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nodepool.model.pool_status import PoolStatus

#: Most bytes of JSON of one record.
MAX_BYTES: Final = 64 * 1024
#: Lists and objects that may be cut, the most expendable first where two are equally long.
LISTS: Final = ("declined", "requests", "waiting", "hosts", "ready", "limits", "labels")
#: Entries of one list at most. Those of requests change all the time, and each is written as often.
MAX_ENTRIES: Final = 200
#: Bytes that an entry is not longer than, as a rule: with fewer entries nobody counts.
_ENTRY_BYTES: Final = 500


def bounded(status: PoolStatus, max_bytes: int = MAX_BYTES) -> PoolStatus:
    """A status that fits: `PoolStatus.omitted` counts what was left out of its lists.

    Of ``declined`` the last ones stay, of other lists the first ones.
    """
    sizes = {name: min(len(getattr(status, name)), MAX_ENTRIES) for name in LISTS}
    made = _cut(status, sizes)
    if sum(sizes.values()) * _ENTRY_BYTES <= max_bytes:
        return made
    while any(sizes.values()) and _length(made) > max_bytes:
        longest = max(LISTS, key=lambda name: _length_of_list(made, name))
        sizes[longest] = len(getattr(made, longest)) // 2
        made = _cut(status, sizes)
    return made


def _cut(status: PoolStatus, sizes: Mapping[str, int]) -> PoolStatus:
    cut: dict[str, Any] = {}
    omitted = status.omitted
    for name, size in sizes.items():
        entries = getattr(status, name)
        if len(entries) > size:
            cut[name] = _first(entries, size) if name != "declined" else entries[len(entries) - size :]
            omitted += len(entries) - size
    return replace(status, **cut, omitted=omitted) if cut else status


def _first(entries: Sequence[Any] | Mapping[str, Any], size: int) -> Any:
    return dict(list(entries.items())[:size]) if isinstance(entries, Mapping) else entries[:size]


def _length(status: PoolStatus) -> int:
    return len(json.dumps(status.to_dict()))


def _length_of_list(status: PoolStatus, name: str) -> int:
    return len(json.dumps(replace(PoolStatus(), **{name: getattr(status, name)}).to_dict()))
