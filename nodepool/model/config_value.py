# SPDX-License-Identifier: Apache-2.0
"""`ConfigValue`: base of everything that is read from a configuration (driver-api.md 6)."""

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
        ignored = {name for cls in type(self).__mro__ for name in vars(cls).get("ignore_equality", ())}
        mine = {name: value for name, value in vars(self).items() if name not in ignored}
        theirs = {name: value for name, value in vars(other).items() if name not in ignored}
        return mine == theirs

    # Equal objects may change, so they have no hash.
    __hash__ = None  # type: ignore[assignment]
