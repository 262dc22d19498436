# SPDX-License-Identifier: Apache-2.0
"""What the log of a launcher tells about a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: What each line begins with, also those that a record has several of.
PREFIX = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ [^\s:\[]+(?:\[[^\]]*\])?: ")
#: What a pool says that the quota, less what others use, leaves no room for the request, even with all our nodes gone.
OVER_QUOTA = "Declining node request: it would exceed quota"
FAILED_PART = re.compile(r"every pool declined its part of .*, request (\S+)")
USED_UP = re.compile(r"Attempt (\d+) of \1 failed")


def tracebacks(lines: Iterable[str]) -> Iterator[str]:
    """The last line of each traceback, for example ``ValueError: no``; one that was cut off has none."""
    depth: int | None = None
    for line in lines:
        text = PREFIX.sub("", line.rstrip("\n"), count=1)
        indent = len(text) - len(text.lstrip())
        if text.lstrip().startswith("Traceback (most recent call last)"):
            depth = indent
        elif depth is not None and text.strip() and indent <= depth:
            yield text.strip()
            depth = None


def used_up(lines: Iterable[str], request_id: str) -> bool:
    """Did a launch for the request have all its attempts?"""
    return any(request_id in line and USED_UP.search(line) for line in lines)


def parts_of(lines: Iterable[str], request_id: str) -> set[str]:
    """The request, and the part of it that made it fail."""
    return {request_id, *(match[1] for line in lines if request_id in line and (match := FAILED_PART.search(line)))}


def exceeded_quota(lines: Iterable[str], request_id: str) -> bool:
    """Was the request refused because the cloud's quota is too small for it?"""
    return any(request_id in line and OVER_QUOTA in line for line in lines)
