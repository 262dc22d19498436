# SPDX-License-Identifier: Apache-2.0
"""Rules for what goes wrong, and the conversions of settings from JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Range = tuple[float, float]

#: Kinds of `ErrorRule` besides statuses.
HANG, DROP, HTML = "hang", "drop", "html"
PORTAL, GARBAGE, ODD, TRUNCATED, HUGE = "portal", "garbage", "odd", "truncated", "huge"
ERROR_KINDS = (HANG, DROP, HTML, PORTAL, GARBAGE, ODD, TRUNCATED, HUGE)


@dataclass
class Rule:
    """Applies to a share of events, a limited number of times.

    :param rate: share of the matching events, 0 to 1.
    :param count: how many events at most; None: without end. Counts down.
    """

    rate: float = 1.0
    count: int | None = None


@dataclass
class ErrorRule(Rule):
    """An API call that goes wrong.

    :param operation: shell pattern of operation names, for example ``compute.create_server``, ``compute.*``, ``*``.
    :param kind: an HTTP status ("500", "503", "429", "401", "403", "404", "409"), ``html`` (a proxy's page with
        ``status``), ``hang`` (no answer for ``seconds``), ``drop`` (the connection ends without an answer), or one of
        status 200: ``portal`` (a web page), ``garbage`` (bytes that are no JSON), ``odd`` (JSON of another shape),
        ``truncated`` (JSON that ends in the middle, and the connection with it) or ``huge`` (``size`` bytes of JSON).
    :param after: the call has its effect first; its answer is lost.
    :param message: text of the error, or the body of ``portal``, ``garbage`` and ``odd``; None for a usual one.
    :param retry_after: header of 429 and 503; None for none.
    :param status: of ``html``.
    :param seconds: how long ``hang`` hangs.
    :param size: of ``huge``, in bytes.
    """

    operation: str = "*"
    kind: str = "500"
    after: bool = False
    message: str | None = None
    retry_after: int | None = None
    seconds: float = 3600.0
    size: int = 100_000_000
    status: int = 502

    def __post_init__(self) -> None:
        if self.kind not in ERROR_KINDS and not (self.kind.isdigit() and 400 <= int(self.kind) <= 599):
            raise ValueError(f"kind {self.kind!r}: an HTTP status from 400 to 599, {', '.join(ERROR_KINDS)}")


def check_kind(kind: str, known: tuple[str, ...]) -> None:
    """Refuses a kind that a rule does not have.

    :raises ValueError: with those that there are.
    """
    if kind not in known:
        raise ValueError(f"kind {kind!r}: one of {', '.join(known)}")


def to_range(value: Any) -> Range:
    """A number, or a pair of them, as a range.

    :raises TypeError, ValueError: it is neither.
    """
    pair = value if isinstance(value, (list, tuple)) else (value, value)
    return (float(pair[0]), float(pair[1]))
