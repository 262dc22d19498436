# SPDX-License-Identifier: Apache-2.0
"""Texts of clouds, made fit for errors and the log. Pure."""

from __future__ import annotations

import re
from typing import Final

#: Longest text of a cloud that goes into an error or the log.
MAX_TEXT: Final = 500
_LOGIN_IN_URL: Final = re.compile(r"://[^/\s@]{1,200}@")


def without_login(text: str) -> str:
    """Without line breaks, and without user and password in addresses."""
    return _LOGIN_IN_URL.sub("://", " ".join(text.split()))


def one_line(text: str) -> str:
    """Without line breaks, not too long, and without user and password in addresses."""
    line = without_login(text)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."
