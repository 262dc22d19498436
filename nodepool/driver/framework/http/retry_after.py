# SPDX-License-Identifier: Apache-2.0
"""When a server wants to be asked again."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping

from nodepool.clock import wall_time


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
