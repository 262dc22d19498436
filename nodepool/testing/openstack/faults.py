# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that is not well."""

from __future__ import annotations

from nodepool.testing.openstack.knobs import DROP, HANG, HTML, ErrorRule
from nodepool.testing.openstack.messages import Answer, ApiError
from nodepool.testing.openstack.routing import Service

MESSAGES = {
    401: "The request you have made requires authentication.",
    403: "Policy doesn't allow this operation to be performed.",
    429: "Too many requests.",
    500: "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/.",
    503: "The server is currently unavailable. Please try again at a later time.",
}
PROXY_PAGE = (
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>"
    "The proxy server received an invalid response from an upstream server.</body></html>"
)


def fault_answer(service: Service, rule: ErrorRule) -> Answer:
    """What the client gets instead of the real answer."""
    if rule.kind == HANG:
        return Answer(silence=rule.seconds)
    if rule.kind == DROP:
        return Answer(silence=0.0)
    if rule.kind == HTML:
        return Answer(502, (rule.message or PROXY_PAGE).encode(), content_type="text/html")
    status = int(rule.kind)
    headers = {"Retry-After": str(rule.retry_after)} if rule.retry_after is not None else {}
    return service.error(ApiError(status, rule.message or MESSAGES.get(status, "Simulated error."), headers=headers))
