# SPDX-License-Identifier: Apache-2.0
"""Pages of lists whose next one is asked for with a token that says nothing to the client."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

V = TypeVar("V")


def page(
    entries: Sequence[V], key: Callable[[V], str], token: str | None, limit: int | None, *, empty_first: bool = False
) -> tuple[Sequence[V], str | None]:
    """One page, and the token of the next one; None = there is none.

    The token names the last entry that was given. Entries that were added or removed meanwhile do not shift the
    others, as long as the order of the keys is the order of the entries or the last entry is still there.

    :param key: of an entry; no two have the same.
    :param token: of an earlier answer; None = from the beginning.
    :param limit: most entries; None = all.
    :param empty_first: the first page has no entries, and names a next one.
    :raises ValueError: this is no token of ours.
    """
    if token is None and empty_first:
        return entries[:0], _token("")
    if token is not None:
        entries = _behind(entries, key, _read(token))
    if limit is None or len(entries) <= limit:
        return entries, None
    part = entries[:limit]
    return part, _token(key(part[-1]))


def _token(last: str) -> str:
    """:param last: key of the last entry that was given; "" = there was none."""
    return base64.urlsafe_b64encode(f"after {last}".encode()).decode()


def _read(token: str) -> str:
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        raise ValueError(f"bad token {token!r}") from None
    if not text.startswith("after "):
        raise ValueError(f"bad token {token!r}")
    return text.removeprefix("after ")


def _behind(entries: Sequence[V], key: Callable[[V], str], last: str) -> Sequence[V]:
    for number, entry in enumerate(entries) if last else ():
        if key(entry) == last:
            return entries[number + 1 :]
    return [entry for entry in entries if key(entry) > last]
