# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a call, in the words of `nodepool.exceptions` (reference/driver 13)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import MAX_TEXT, CloudNotFound, CloudQuota, CloudRefused, one_line

#: Of a page of WebOb, which Glance answers with: its title tells the status only.
_WEBOB_REASON: Final = re.compile(r"</h1>((?:[^<]|<br ?/>)*<br ?/>\s*<br ?/>(?:[^<]|<br ?/>)*)")
#: Statuses with which services refuse something as over quota, if the text says so too.
_QUOTA_STATUSES: Final = frozenset({400, 403, 409, 413})
#: Of oslo.limit, which Keystone's limits are checked with. What begins with "server_" limits one call, not the project.
_OVER_LIMIT: Final = re.compile(r"resource (?!server_)\S+ is over limit of")


class ServiceAbsent(CloudRefused):
    """The catalog of the cloud has no such service."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 404)


def is_quota_text(text: str) -> bool:
    """Does an error or fault of the cloud say that a quota is used up? (O-3)"""
    lower = text.lower()
    return (
        "quota exceeded" in lower
        or "over quota" in lower
        or _OVER_LIMIT.search(lower) is not None
        or ("exceed" in lower and "quota" in lower)
        or "number of ports exceeded" in lower
        or "maximum number of ports" in lower
    )


def refusal(head: str, said: str, status: int) -> CloudRefused:
    """The exception for a 4xx answer.

    :param head: whose call it was, and which.
    :param said: the cloud's own words.
    """
    kind = CloudRefused
    if status == 404:
        kind = CloudNotFound
    elif status in _QUOTA_STATUSES and is_quota_text(said):
        kind = CloudQuota
    return kind(f"{head}: {status} {said}", status, f"{status} {said}")


def is_of_a_proxy(body: bytes, content_type: str, headers: Mapping[str, str]) -> bool:
    """Is an error answer a page of something between us and the service? Only then nothing of it is the service's."""
    page = "html" in content_type or body.lstrip()[:1] == b"<"
    # Each service has the first, of oslo.middleware; those without it write pages with WebOb.
    known = "x-openstack-request-id" in headers or "x-compute-request-id" in headers
    return page and not known and _WEBOB_REASON.search(body[: 64 * MAX_TEXT].decode("utf-8", "replace")) is None


def message_of(body: bytes, content_type: str) -> str:
    """What an error answer says, in one line; tolerates everything.

    :param body: JSON in one of the forms of the services, HTML, or text.
    """
    text = body[: 64 * MAX_TEXT].decode("utf-8", "replace")
    if "json" in content_type or text.lstrip().startswith("{"):
        try:
            found = _message(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        if found:
            return one_line(found)
    if "html" in content_type or text.lstrip()[:1] == "<":
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1", text, re.IGNORECASE | re.DOTALL)
        reason = _WEBOB_REASON.search(text)
        for part in (reason and reason[1], title and title[2], text):
            told = html.unescape(re.sub(r"<[^>]*>", " ", part or ""))
            if told.strip():
                return one_line(told)
        return ""
    return one_line(text)


def _message(data: Any) -> str | None:
    """Nova: ``{kind: {message}}``; Neutron: ``{NeutronError: {message}}`` or a text; Keystone: ``{error: ...}``."""
    if isinstance(data, str):
        # Glance has the page of WebOb in it.
        return re.sub(r"(<br ?/>|\s)+", " ", data)
    if isinstance(data, list):
        return "; ".join(text for text in map(_message, data) if text)
    if not isinstance(data, dict):
        return None
    for key in ("message", "faultstring", "NeutronError", "error", "errors", "detail"):
        found = _message(data.get(key))
        if found:
            return found
    return next((text for text in map(_message, data.values()) if text), None)
