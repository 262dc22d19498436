# SPDX-License-Identifier: Apache-2.0
"""`shown_text`: how pages show texts that come from other programs."""

from __future__ import annotations

from typing import Final

from nodepool.listing.times import printable_lines

#: Longest text that a page shows.
MAX_TEXT: Final = 2000


def shown_text(text: str) -> str:
    """A text without characters that do more than be seen, and not too long. It is not escaped."""
    if len(text) > MAX_TEXT:
        return printable_lines(f"{text[:MAX_TEXT]}...")
    return text if text.isprintable() else printable_lines(text)
