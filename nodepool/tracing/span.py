# SPDX-License-Identifier: Apache-2.0
"""A span, and the ids that follow from records: whoever takes a request over continues its trace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: Bits of ids, as W3C Trace Context has them.
TRACE_ID_BITS: Final = 128
SPAN_ID_BITS: Final = 64
#: Flag of a trace that is recorded.
SAMPLED: Final = 1

AttributeValue = str | int | float | tuple[str, ...]


class Trace(NamedTuple):
    """Where the spans of a request, or of a build, belong.

    :param trace_id: 128 bits, not 0.
    :param parent_id: span of whoever asked, 64 bits; 0 = there is none.
    :param sampled: False: whoever began the trace does not want it recorded.
    """

    trace_id: int
    parent_id: int = 0
    sampled: bool = True

    @property
    def text(self) -> str:
        """The id of the trace as OpenTelemetry writes it: 32 hexadecimal digits."""
        return f"{self.trace_id:032x}"


class Span(NamedTuple):
    """Something that took time, and has ended.

    :param parent_id: 0 = it has no parent.
    :param begin, end: seconds since the epoch.
    :param error: why it failed; empty = it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    begin: float
    end: float
    attributes: Mapping[str, AttributeValue] = MappingProxyType({})
    error: str = ""


def derived_id(bits: int, *parts: object) -> int:
    """An id that is the same whenever and wherever it is made of the same parts. Never 0.

    :param bits: `TRACE_ID_BITS` or `SPAN_ID_BITS`.
    """
    text = "\0".join(map(str, parts)).encode(errors="backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=bits // 8).digest(), "big") or 1


def trace_of(request: NodeRequest) -> Trace:
    """The trace of a request: that of ``span_info`` in its ``requestor_data``, else one of its own.

    Zuul 14.3 writes ``span_info`` as ``zuul.lib.tracing.getSpanInfo`` makes it.
    """
    data = request.requestor_data
    info = data.get("span_info") if isinstance(data, dict) else None
    if isinstance(info, dict):
        trace_id, parent_id = info.get("trace_id"), info.get("span_id")
        if is_id(trace_id, TRACE_ID_BITS) and is_id(parent_id, SPAN_ID_BITS):
            flags = info.get("trace_flags", SAMPLED)
            return Trace(trace_id, parent_id, not isinstance(flags, int) or bool(flags & SAMPLED))
    return Trace(derived_id(TRACE_ID_BITS, "request", request.id, request.created_time))


def is_id(value: Any, bits: int) -> TypeGuard[int]:
    """Is it a valid id? 0 is none."""
    return type(value) is int and 0 < value < 1 << bits
