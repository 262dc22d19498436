# SPDX-License-Identifier: Apache-2.0
"""Checks that a driver's class has all that its base promises; one error lists everything missing."""

from __future__ import annotations

from typing import Any


class ContractError(TypeError):
    """A driver's class is not complete."""


def missing_members(cls: type[Any]) -> list[str]:
    """Names that a class must still implement."""
    return sorted(getattr(cls, "__abstractmethods__", ()))


def check(cls: type[Any], origin: str) -> None:
    """Refuse an incomplete class.

    :param origin: what the class belongs to, for the message.
    :raises ContractError: names all that is missing.
    """
    missing = missing_members(cls)
    if missing:
        raise ContractError(f"{origin}: class {cls.__name__} must implement {', '.join(missing)}")
