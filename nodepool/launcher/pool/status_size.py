# SPDX-License-Identifier: Apache-2.0
"""How much of a pool's status is stored: lists are cut until it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nodepool.model.pool_status import PoolStatus
from nodepool.model.typed_record import as_json

#: Most bytes of JSON of one record.
MAX_BYTES: Final = 64 * 1024
#: Lists and objects that may be cut.
LISTS: Final = (
    "limits",
    "labels",
    "ready",
    "waiting",
    "requests",
    "declined",
    "launching",
    "hosts",
    "slow_calls",
    "missing",
    "other_installations",
)
#: Entries of one of them at most.
MAX_ENTRIES: Final = 200
#: Bytes that an entry is not longer than, as a rule: with fewer entries nobody counts.
_ENTRY_BYTES: Final = 500


def bounded(status: PoolStatus, max_bytes: int = MAX_BYTES) -> PoolStatus:
    """A status that fits: `PoolStatus.omitted` counts what was left out of its lists.

    Of ``declined`` the last entries stay, of other lists the first ones.
    """
    sizes = {name: min(len(getattr(status, name)), MAX_ENTRIES) for name in LISTS}
    made = _cut(status, sizes)
    if sum(sizes.values()) * _ENTRY_BYTES <= max_bytes:
        return made
    lengths = {name: _lengths(getattr(made, name)) for name in LISTS}
    nothing: dict[str, Any] = dict.fromkeys(LISTS, ())
    room = max_bytes - _length(replace(status, **nothing))
    totals = {name: sum(found) for name, found in lengths.items()}
    while sum(totals.values()) > room and any(sizes.values()):
        longest = max(LISTS, key=totals.__getitem__)
        sizes[longest] //= 2
        totals[longest] = sum(_kept(longest, lengths[longest], sizes[longest]))
    return _cut(status, sizes)


def _cut(status: PoolStatus, sizes: Mapping[str, int]) -> PoolStatus:
    cut: dict[str, Any] = {}
    omitted = status.omitted
    for name, size in sizes.items():
        entries = getattr(status, name)
        if len(entries) > size:
            cut[name] = _kept(name, entries, size)
            omitted += len(entries) - size
    return replace(status, **cut, omitted=omitted) if cut else status


def _kept(name: str, entries: Sequence[Any] | Mapping[str, Any], size: int) -> Any:
    """What stays of a list."""
    if isinstance(entries, Mapping):
        return dict(list(entries.items())[:size])
    return entries[len(entries) - size :] if name == "declined" else entries[:size]


def _lengths(entries: Sequence[Any] | Mapping[str, Any]) -> list[int]:
    """Bytes of JSON of each entry, with what is between them."""
    parts = list(entries.items()) if isinstance(entries, Mapping) else entries
    return [_length(part) + 2 for part in parts]


def _length(part: Any) -> int:
    return len(as_json(part))
