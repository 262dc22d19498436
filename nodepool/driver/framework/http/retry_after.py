# SPDX-License-Identifier: Apache-2.0
"""When a server wants to be asked again."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping

from nodepool.clock import wall_time


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
