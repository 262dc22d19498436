# SPDX-License-Identifier: Apache-2.0
"""`ConfigValue`: base of everything that is read from a configuration (reference/driver 6)."""

from __future__ import annotations

from typing import ClassVar


class ConfigValue:
    """Compares by attributes: a reload touches only what is not equal any more.

    Class attribute ``ignore_equality`` names attributes that are left out, such as references back to the owner,
    which would make comparing endless. The names of base classes count as well.
    """

    ignore_equality: ClassVar[list[str]] = []

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        ignored = _ignored(type(self))
        mine, theirs = vars(self), vars(other)
        if ignored:
            mine, theirs = dict(mine), dict(theirs)
            for name in ignored:
                mine.pop(name, None)
                theirs.pop(name, None)
        return mine == theirs

    # Equal objects may change, so they have no hash.
    __hash__ = None  # type: ignore[assignment]


#: Found once a class: a configuration can have ten thousands of objects.
_IGNORED: dict[type, frozenset[str]] = {}


def _ignored(cls: type) -> frozenset[str]:
    names = _IGNORED.get(cls)
    if names is None:
        names = frozenset(name for base in cls.__mro__ for name in vars(base).get("ignore_equality", ()))
        _IGNORED[cls] = names
    return names
