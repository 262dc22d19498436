# SPDX-License-Identifier: Apache-2.0
"""Why did a cloud not answer? In one line that names the address, from what the libraries say. Pure."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from typing import Final

from nodepool.clock import wall_time

#: An address at which nobody could be reached, in the texts of keystoneauth, and the same in those of requests.
_ADDRESS: Final = (
    re.compile(
        r"(?:Unable to establish connection to|SSL exception connecting to|Request to) "
        r"(https?://[^\s:]+(?::\d+)?[^\s:]*)"
    ),
    re.compile(r"(?:Pool|Connection)\(host='([^']+)', port='?(\d+)'?\)"),
)
#: What is found in a text -> the cause; the first that matches counts. ``{}`` is what the expression found.
_CAUSES: Final = (
    (re.compile(r"certificate verify failed: ([^(\[\]]+?)\s*\("), "its certificate is not accepted ({})"),
    (
        re.compile(r"WRONG_VERSION_NUMBER|wrong version number"),
        "it does not speak TLS there (is it http:// instead of https://?)",
    ),
    (re.compile(r"\bSSLError\b|SSL exception"), "the TLS handshake failed"),
    (
        re.compile(r"Name or service not known|NameResolutionError|getaddrinfo|name resolution", re.IGNORECASE),
        "the name cannot be resolved",
    ),
    (re.compile(r"Connection refused"), "connection refused"),
    (re.compile(r"(No route to host|Network is unreachable)"), "{}"),
    (re.compile(r"timed out", re.IGNORECASE), "timed out"),
    (
        re.compile(r"(Connection reset by peer|Connection aborted|RemoteDisconnected|Broken pipe)"),
        "the connection broke ({})",
    ),
)


def no_answer(text: str) -> str | None:
    """Address and cause, such as ``no answer from https://cloud:5000/v3: connection refused``.

    :param text: what a library says of a call, without logins in addresses.
    :return: None = the text is about something else, such as an answer that was there.
    """
    cause = next((said.format(*found.groups()) for sign, said in _CAUSES if (found := sign.search(text))), None)
    address = _address_in(text)
    if cause is None or address is None:
        return None
    return f"no answer from {address}: {cause}"


def _address_in(text: str) -> str | None:
    found = _ADDRESS[0].search(text)
    if found is not None:
        return found[1].rstrip("'\",.")
    found = _ADDRESS[1].search(text)
    return None if found is None else f"{found[1]}:{found[2]}"


# When a server wants to be asked again.


def asks_for_a_pause(status: int, headers: Mapping[str, str]) -> bool:
    """Does an answer say that there were too many calls? 429 always does, 413 and 503 with ``Retry-After``.

    413 with ``Retry-After: 0`` is how Cinder says that a quota is used up.
    """
    after = headers.get("Retry-After")
    return status == 429 or (status == 503 and after is not None) or (status == 413 and after not in (None, "0"))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of ``Retry-After``, which may be a number or a date (RFC 9110, 10.2.3); None = it is not there."""
    text = headers.get("Retry-After")
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        when = email.utils.parsedate_tz(text)
        return None if when is None else max(0.0, email.utils.mktime_tz(when) - wall_time())
