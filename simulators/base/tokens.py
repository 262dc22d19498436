# SPDX-License-Identifier: Apache-2.0
"""Creates that are made once for each key that the client gives."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class TokenMismatch(Exception):
    """The key was used with other parameters before."""


class CreateTokens(Generic[V]):
    """What was made for each key, with the parameters it was made of."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[object, V]] = {}

    def find(self, key: Hashable, parameters: object) -> V | None:
        """What was made for this key; None = nothing yet.

        :raises TokenMismatch: it was made of other parameters.
        """
        found = self._known.get(key)
        if found is None:
            return None
        if found[0] != parameters:
            raise TokenMismatch(str(key))
        return found[1]

    def remember(self, key: Hashable, parameters: object, made: V) -> None:
        """It was made. A call that failed is not remembered."""
        self._known[key] = (parameters, made)

    def forget(self, key: Hashable) -> None:
        """The cloud knows the key no more."""
        self._known.pop(key, None)
