# SPDX-License-Identifier: Apache-2.0
"""Keys that take a value, or several values in order."""

from __future__ import annotations

from typing import Any, Final

from nodepool.model.config_keys import FILLED_TEXT, TEXT, ListOf, OneOf

#: A text, or texts in order.
ONE_OR_MORE: Final = OneOf((TEXT, ListOf(FILLED_TEXT)))


def in_order(given: str | list[str]) -> list[str]:
    """What `ONE_OR_MORE` gives, as a list."""
    return [given] if isinstance(given, str) else list(given)


def as_texts(tags: dict[Any, Any]) -> dict[str, str]:
    """Tags as a cloud takes them: YAML takes ``release: 12`` for a number."""
    return {str(name): str(value) for name, value in tags.items()}
