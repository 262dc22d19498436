# SPDX-License-Identifier: Apache-2.0
"""Which form of an answer a client prefers (RFC 9110, Accept)."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_RANGE: Final = re.compile(rf"(\*/\*|{_TOKEN}/(?:\*|{_TOKEN}))((?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|\"[^\"]*\"))*)")
_WEIGHT: Final = re.compile(r";\s*q=([^\s;]*)", re.IGNORECASE)
_QUALITY: Final = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")
_JSON: Final = "application/json"
_TEXTS: Final = ("text/html", "text/plain")


def prefers_json(header: str | None) -> bool:
    """Does a client want JSON more than text?

    :param header: value of ``Accept``; None, and one that cannot be read, is no preference.
    """
    weights = _weights(header or "")
    return _weight(_JSON, weights) > max(_weight(text, weights) for text in _TEXTS)


def _weights(header: str) -> dict[str, float]:
    """Each range of media types -> its weight, 0 to 1; empty if the header cannot be read. Parameters do not count."""
    found: dict[str, float] = {}
    for part in header.split(","):
        text = part.strip()
        if not text:
            continue
        match = _RANGE.fullmatch(text)
        weight = _WEIGHT.search(text)
        quality = "1" if weight is None else weight[1]
        if match is None or not _QUALITY.fullmatch(quality):
            return {}
        found[match[1].lower()] = float(quality)
    return found


def _weight(media_type: str, weights: dict[str, float]) -> float:
    """Of the range that names a type most exactly."""
    for name in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        if name in weights:
            return weights[name]
    return 0.0
