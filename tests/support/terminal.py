# SPDX-License-Identifier: Apache-2.0
"""A stream that is a terminal, and what stands on it."""

from __future__ import annotations

import io
import re
from typing import Final

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TerminalStream(io.TextIOWrapper):
    """In memory; ``rich`` takes its size from the variables COLUMNS and LINES."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding=encoding, errors="backslashreplace", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def raw_text(self) -> str:
        """All that was written, with its escape sequences."""
        return self._bytes.getvalue().decode(self.encoding)

    @property
    def lines(self) -> list[str]:
        """All that was written, as lines without escape sequences."""
        return without_escapes(self.raw_text).splitlines()


def without_escapes(text: str) -> str:
    """What a person sees of a text for a terminal that was written from top to bottom."""
    return _ESCAPE.sub("", text)
