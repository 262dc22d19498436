# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that is not well."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulators.base import rules as kinds
from simulators.base.messages import Answer, ApiError
from simulators.base.rules import ErrorRule

PROXY_PAGE = (
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>"
    "The proxy server received an invalid response from an upstream server.</body></html>"
)
#: Body and content type of answers with status 200.
BODIES = {
    kinds.PORTAL: (
        b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Hello</body></html>",
        "text/html",
    ),
    kinds.GARBAGE: (b"\x00\xff{{", "application/json"),
    kinds.ODD: (b"[null, 7]", "application/json"),
    kinds.TRUNCATED: (b'{"servers": [{"id": "', "application/json"),
}


def fault_answer(
    rule: ErrorRule, error: Callable[[ApiError], Answer], messages: Mapping[int, str] | None = None
) -> Answer:
    """What the client gets instead of the real answer.

    :param error: gives an error the shape of the service.
    :param messages: status -> text where the rule has none.
    """
    if rule.kind == kinds.HANG:
        return Answer(silence=rule.seconds)
    if rule.kind == kinds.DROP:
        return Answer(silence=0.0)
    if rule.kind == kinds.HTML:
        return Answer(rule.status, (rule.message or PROXY_PAGE).encode(), content_type="text/html")
    if rule.kind in BODIES:
        body, content_type = BODIES[rule.kind]
        body = body if rule.message is None else rule.message.encode()
        return Answer(200, body, content_type=content_type, cut=rule.kind == kinds.TRUNCATED)
    if rule.kind == kinds.HUGE:
        return Answer(200, b'{"padding": "' + b"x" * rule.size + b'"}')
    status = int(rule.kind)
    headers = {"Retry-After": str(rule.retry_after)} if rule.retry_after is not None else {}
    message = rule.message or (messages or {}).get(status, "Simulated error.")
    return error(ApiError(status, message, headers=headers))
