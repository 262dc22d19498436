# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a call, in the words of `nodepool.exceptions` (reference/driver 13)."""

from __future__ import annotations

import html
import json
import re
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudQuota, CloudRefused
from nodepool.driver.framework.cloud_texts import MAX_TEXT, one_line

#: Of a page of WebOb, which Glance answers with: its title tells the status only.
_WEBOB_REASON: Final = re.compile(r"</h1>((?:[^<]|<br ?/>)*<br ?/>\s*<br ?/>(?:[^<]|<br ?/>)*)")
#: Statuses with which services refuse something as over quota, if the text says so too.
_QUOTA_STATUSES: Final = frozenset({400, 403, 409, 413})


class ServiceAbsent(CloudRefused):
    """The catalog of the cloud has no such service."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 404)


def is_quota_text(text: str) -> bool:
    """Does an error or fault of the cloud say that a quota is used up? (O-3)"""
    lower = text.lower()
    return (
        "quota exceeded" in lower
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
        return data
    if not isinstance(data, dict):
        return None
    for key in ("message", "faultstring", "NeutronError", "error"):
        found = _message(data.get(key))
        if found:
            return found
    return next((text for text in map(_message, data.values()) if text), None)
