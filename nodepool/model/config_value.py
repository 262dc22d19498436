# SPDX-License-Identifier: Apache-2.0
"""`ConfigValue`: base of everything that is read from a configuration (reference/driver 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from nodepool.model.config_keys import read_plan


class ConfigValue:
    """Compares by attributes: a reload touches only what is not equal any more.

    Class attribute ``ignore_equality`` names attributes that are left out, such as references back to the owner,
    which would make comparing endless. The names of base classes count as well. Keys may be declared in the class body,
    see `nodepool.model.config_keys`.
    """

    ignore_equality: ClassVar[list[str]] = []
    #: Names of keys that base classes have, but not this section.
    without_keys: ClassVar[tuple[str, ...]] = ()
    #: Other sections whose keys stand in this section, too. Only their own class reads them.
    keys_also_of: ClassVar[tuple[type, ...]] = ()

    def read_keys(self, data: Mapping[str, Any], section: type | None = None) -> None:
        """Set the attributes of the declared keys.

        :param data: the section in the file; it conforms to the schema.
        :param section: only keys of this base class; None = all.
        """
        read_plan(section or type(self)).read(self, data)

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

    def __hash__(self) -> int:
        """One for each class: equal objects have the same, also when they change. Drivers written for 11.0.0 use it."""
        return hash(type(self))


#: Found once a class: a configuration can have ten thousands of objects.
_IGNORED: dict[type, frozenset[str]] = {}


def _ignored(cls: type) -> frozenset[str]:
    names = _IGNORED.get(cls)
    if names is None:
        names = frozenset(name for base in cls.__mro__ for name in vars(base).get("ignore_equality", ()))
        _IGNORED[cls] = names
    return names
