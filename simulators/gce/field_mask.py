# SPDX-License-Identifier: Apache-2.0
"""Partial answers: ``fields=items(name,status),nextPageToken``. Pure.

https://developers.google.com/discovery/v1/performance#partial-response
"""

from __future__ import annotations

from typing import Any

from simulators.base.messages import ApiError, Json

Mask = dict[str, "Mask | None"]


def read_mask(text: str) -> Mask | None:
    """What a mask keeps: field -> what is kept of it; None = all.

    :raises ApiError: 400, this is none.
    """
    if not text or text == "*":
        return None
    mask, end = _read(text, 0)
    if end != len(text):
        raise _bad(text)
    return mask


def _bad(text: str) -> ApiError:
    return ApiError(400, f"Invalid field selection {text}", "invalidParameter")


def _read(text: str, position: int) -> tuple[Mask, int]:
    mask: Mask = {}
    while True:
        position = _entry(text, position, mask)
        if position >= len(text) or text[position] != ",":
            return mask, position
        position += 1


def _entry(text: str, position: int, mask: Mask) -> int:
    start = position
    while position < len(text) and text[position] not in ",()/":
        position += 1
    name = text[start:position]
    if not name:
        raise _bad(text)
    mark = text[position] if position < len(text) else ""
    inner: Mask = {}
    if mark == "/":
        position = _entry(text, position + 1, inner)
    elif mark == "(":
        inner, position = _read(text, position + 1)
        if position >= len(text) or text[position] != ")":
            raise _bad(text)
        position += 1
    _add(mask, {name: inner or None})
    return position


def _add(mask: Mask, more: Mask) -> None:
    """Keep more; what is kept as a whole stays whole."""
    for name, inner in more.items():
        present = mask.get(name, {})
        if inner is None or present is None:
            mask[name] = None
        else:
            _add(present, inner)
            mask[name] = present


def masked(content: Any, mask: Mask | None) -> Any:
    """What the mask keeps of it."""
    if mask is None:
        return content
    if isinstance(content, list):
        return [masked(entry, mask) for entry in content]
    if not isinstance(content, dict):
        return content
    if "*" in mask:
        return {name: masked(value, mask.get(name, mask["*"])) for name, value in content.items()}
    found: Json = {}
    for name, inner in mask.items():
        if name in content:
            kept = masked(content[name], inner)
            # An object of which nothing is kept is left out.
            if kept != {} or content[name] == {}:
                found[name] = kept
    return found
