# SPDX-License-Identifier: Apache-2.0
"""Which keys of a configuration may hold a secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Values under keys with these words in them are never shown.
SECRET_WORDS: Final = ("password", "secret", "token", "env-vars", "api-key", "apikey", "credential")


def names_a_secret(path: Iterable[object]) -> bool:
    """May the value at a path of keys be a secret?"""
    return any(word in str(part).lower() for part in path for word in SECRET_WORDS)
