# SPDX-License-Identifier: Apache-2.0
"""Sections of a file as they stand there, before anybody knows that they conform to a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def mappings(data: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings.

    :param data: has the list under ``key``, if it is a mapping and that is a list.
    """
    entries = data.get(key) if isinstance(data, dict) else None
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry
