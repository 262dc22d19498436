# SPDX-License-Identifier: Apache-2.0
"""Waiting requests of one pool, in order, in buckets of requests that are judged alike.

Whether a pool may serve a request depends on a few of its fields only. Requests that agree in these share a
bucket, and the pool judges a bucket, not each request: work follows the number of kinds of requests, not the
length of the backlog. Only the head of a bucket is looked at.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from nodepool.model.request import NodeRequest, OrderKey

#: ``requestor`` of requests that keep ``min-ready`` nodes there (rule M-2).
MIN_READY_REQUESTOR = "NodePool:min-ready"
#: Comes after every sequence in an order key.
_AFTER_ALL = "\U0010ffff"


class RequestKind(NamedTuple):
    """What the requests of a bucket have in common."""

    labels: tuple[str, ...]
    provider: str | None
    declined_by: frozenset[str]
    tenant_name: str | None
    reuse: bool
    min_ready: bool

    @classmethod
    def of(cls, request: NodeRequest) -> RequestKind:
        return cls(
            tuple(sorted(request.node_types)),
            request.provider,
            frozenset(request.declined_by),
            request.tenant_name,
            request.reuse,
            request.requestor == MIN_READY_REQUESTOR,
        )

    @property
    def mark(self) -> str:
        """A few characters that tell this kind from others with the same labels, provider and tenant."""
        parts = (*sorted(self.declined_by), str(self.reuse), str(self.min_ready))
        return f"{zlib.crc32(' '.join(parts).encode()):08x}"


class Bucket:
    """Waiting requests of one kind, in service order."""

    def __init__(self, kind: RequestKind) -> None:
        self.kind = kind
        self._entries: list[tuple[OrderKey, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter([request_id for _, request_id in self._entries])

    def first(self, count: int) -> list[str]:
        """Ids of the requests that are served first, at most ``count``."""
        return [request_id for _, request_id in self._entries[:count]]

    @property
    def head_key(self) -> OrderKey:
        return self._entries[0][0]

    @property
    def head(self) -> str:
        """Id of the request that is served first."""
        return self._entries[0][1]

    def oldest(self) -> str | None:
        """Id of the request that was submitted first; None = there is none any more. Any thread.

        Looks at one request for each priority.
        """
        entries, at = self._entries.copy(), 0
        found: list[tuple[str, str]] = []
        while at < len(entries):
            (priority, relative_priority, sequence), request_id = entries[at]
            found.append((sequence, request_id))
            at = bisect.bisect_right(entries, ((priority, relative_priority, _AFTER_ALL), ""), at)
        return min(found)[1] if found else None

    def add(self, key: OrderKey, request_id: str) -> None:
        bisect.insort(self._entries, (key, request_id))

    def index(self, key: OrderKey, request_id: str) -> int:
        return bisect.bisect_left(self._entries, (key, request_id))

    def remove(self, key: OrderKey, request_id: str) -> None:
        del self._entries[self.index(key, request_id)]


class RequestQueue:
    """Waiting requests, by kind. Owned by one thread."""

    def __init__(self) -> None:
        self._buckets: dict[RequestKind, Bucket] = {}
        self._where: dict[str, tuple[Bucket, OrderKey]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._where

    def put(self, request: NodeRequest) -> None:
        """Add a request, or move it to where it belongs now."""
        request_id = request.key
        key = request.order_key
        kind = RequestKind.of(request)
        found = self._where.get(request_id)
        if found is not None:
            if found[0].kind == kind and found[1] == key:
                return
            self.discard(request_id)
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = Bucket(kind)
        bucket.add(key, request_id)
        self._where[request_id] = (bucket, key)

    def discard(self, request_id: str) -> None:
        """Remove a request; one that is not here is fine."""
        found = self._where.pop(request_id, None)
        if found is None:
            return
        bucket, key = found
        bucket.remove(key, request_id)
        if not bucket:
            del self._buckets[bucket.kind]

    def bucket_of(self, request_id: str) -> Bucket | None:
        """Where a request waits; None = it is not here."""
        found = self._where.get(request_id)
        return None if found is None else found[0]

    def place_of(self, request_id: str) -> int | None:
        """How many requests of its kind are served before a request; None = it is not here."""
        found = self._where.get(request_id)
        return None if found is None else found[0].index(found[1], request_id)

    def ids(self) -> list[str]:
        """All requests that wait, in no order."""
        return list(self._where)

    def oldest(self, kind: RequestKind) -> str | None:
        """Id of the request of a kind that was submitted first; None = there is none any more. Any thread."""
        bucket = self._buckets.get(kind)
        return None if bucket is None else bucket.oldest()

    def count(self, kind: RequestKind) -> int:
        """How many requests of a kind wait."""
        bucket = self._buckets.get(kind)
        return 0 if bucket is None else len(bucket)

    def buckets(self) -> list[Bucket]:
        return list(self._buckets.values())

    def clear(self) -> None:
        self._buckets.clear()
        self._where.clear()
