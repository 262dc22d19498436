# SPDX-License-Identifier: Apache-2.0
"""Checks that the classes of a driver implement everything that their base classes require.

One error lists everything that is missing.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class ContractError(TypeError):
    """A driver's class is not complete, or not of the right kind."""


def missing_members(cls: type[Any]) -> list[str]:
    """Names of abstract members that a class must still implement, sorted."""
    return sorted(getattr(cls, "__abstractmethods__", ()))


def check(cls: type[Any], origin: str) -> None:
    """Refuse an incomplete class.

    :param origin: what the class belongs to, for the message, e.g. ``driver 'aws'``.
    :raises ContractError: names all that is missing.
    """
    missing = missing_members(cls)
    if missing:
        raise ContractError(f"{origin}: class {cls.__name__} must implement {', '.join(missing)}")


def check_instance(value: T, base: type[Any], origin: str) -> T:
    """Refuse what a driver returned if it is not an object of the class that the contract asks for.

    :return: ``value``.
    :raises ContractError: it is not.
    """
    if not isinstance(value, base):
        raise ContractError(f"{origin} must return a {base.__name__}, not {type(value).__name__}")
    return value
