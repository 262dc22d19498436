# SPDX-License-Identifier: Apache-2.0
"""Declarations of configuration keys: name, type, default, attribute and meaning of a key stand in one place.

First the types of values, then keys, then the base of sections (`ConfigValue`), then words that a mistyped key may
mean, lists of tenants, and keys that may hold a secret.

A section of the configuration is a subclass of `nodepool.model.config_keys.ConfigValue` with its keys in its body::

    class Pool(ConfigValue):
        max_ram: int | None = key(WHOLE, None, "Memory that the nodes may use.", unit="MiB")

Of the declaration are made: the attribute and its default (`ConfigValue.read_keys`), the schema
(`nodepool.driver.config`) and the tables of the documentation (``doc/source/extensions``). What a key
sets counts when two objects are compared.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, cast

#: Greatest number that a configuration may hold: it must fit in what a cloud, a database or a float can hold.
MAX_INT: Final = 2**63 - 1
#: Default of a key that must be there.
REQUIRED: Final = object()
#: Instead of a value: the key counts as not given.
NOT_GIVEN: Final = object()


# Types of values.


@dataclass(frozen=True)
class ValueType:
    """What a value may be.

    :param null: null is allowed.
    """

    null: bool = dataclasses.field(default=False, kw_only=True)

    def or_null(self) -> Self:
        return dataclasses.replace(self, null=True)


@dataclass(frozen=True)
class Text(ValueType):
    """A text.

    :param choices: the only texts that are allowed; none = any.
    :param pattern: one between slashes is a regular expression.
    :param form: regular expression of the texts that are allowed, and the same in words; none = any.
    """

    empty: bool = True
    choices: tuple[str, ...] = ()
    pattern: bool = False
    form: tuple[str, str] | None = None


@dataclass(frozen=True)
class Whole(ValueType):
    """A whole number, not ``true`` or ``false``.

    :param instead: what a daemon takes for a value that means no number: a number, or `NOT_GIVEN`; None = it is wrong.
    """

    minimum: int = -MAX_INT
    maximum: int = MAX_INT
    instead: object = None


@dataclass(frozen=True)
class Number(ValueType):
    """A number with or without a fraction; the attribute is a float.

    :param more: the number is more than the minimum.
    """

    minimum: float = -MAX_INT
    more: bool = False


@dataclass(frozen=True)
class Seconds(Number):
    """A duration."""


@dataclass(frozen=True)
class Flag(ValueType):
    """``true`` or ``false``."""


@dataclass(frozen=True)
class MappingOf(ValueType):
    """A mapping.

    :param values: of each key, which is a text; None = any keys and values.
    """

    values: ValueType | None = None


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list.

    :param null_item: what an empty text in it means. A daemon takes null for one. Empty = null means nothing.
    """

    item: ValueType
    null_item: str = ""


@dataclass(frozen=True)
class TextOrNumber(ValueType):
    """A text, or anything that YAML takes for a number or a truth value, such as ``release: 12``."""


@dataclass(frozen=True)
class OneOf(ValueType):
    """A value of any of some types."""

    types: tuple[ValueType, ...]


@dataclass(frozen=True)
class Sections(ValueType):
    """A list of sections. Who reads the section makes the objects; `ConfigValue.read_keys` leaves them alone.

    :param section: class of the objects.
    """

    section: type


TEXT: Final = Text()
FILLED_TEXT: Final = Text(empty=False)
WHOLE: Final = Whole()
PORT: Final = Whole(1, 65535)
FLAG: Final = Flag()
#: Of durations.
SECONDS: Final = Seconds(0)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: The same, or with a unit; see `in_seconds`. And a share; see `in_parts`.
DURATION: Final = OneOf((SECONDS, Text(form=(r"\d+[smhd]", "a number of s, m, h or d, such as 2h"))))
PERCENT: Final = Text(form=(r"([1-9]|[1-4]\d|50)%", "1% to 50%"))


def in_seconds(given: float | str) -> float:
    """What `DURATION` gives."""
    return float(given[:-1]) * _UNITS[given[-1]] if isinstance(given, str) else float(given)


def in_parts(given: str) -> float:
    """What `PERCENT` gives, as a part of 1."""
    return int(given[:-1]) / 100


ANY_MAPPING: Final = MappingOf()
TEXTS: Final = ListOf(TEXT)
#: Names of tenants, see `allows`.
TENANTS: Final = ListOf(Text(empty=False, pattern=True))


#: Values of ``placement``.
FREE_ROOM: Final = "free-room"
EVEN: Final = "even"

# Keys.


@dataclass(frozen=True)
class From:
    """A default that is the attribute of the same name of another object.

    :param owner: attribute of the section with that object, such as ``pool``; without an object the default is None.
    """

    owner: str


def _hyphens(attribute: str) -> str:
    return attribute.replace("_", "-")


@dataclasses.dataclass(eq=False)
class Key:
    """One key of a section; see `key`."""

    kind: ValueType
    default: Any
    help: str
    name: str
    unit: str
    default_text: str
    convert: Callable[[Any], Any] | None
    read: bool
    attribute: str = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = self.name or vars(owner).get("name_of_key", _hyphens)(attribute)
        self.path = self.name.split(".")

    def __get__(self, instance: object, owner: type) -> Any:
        """Of an object that was not read yet: the default."""
        return self if instance is None else self.default_for(instance)

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def default_for(self, section: object) -> Any:
        """Value of the attribute when the key is not given."""
        default = self.default
        if isinstance(default, From):
            return getattr(getattr(section, default.owner, None), self.attribute, None)
        if isinstance(default, (list, dict, set)):
            return default.copy()
        return None if default is REQUIRED else default

    def given(self, data: Mapping[str, Any]) -> Any:
        """What a section of the file has for it; None also for nothing."""
        given: Any = data.get(self.path[0])
        for part in self.path[1:]:
            given = given.get(part) if isinstance(given, dict) else None
        return given

    def value(self, section: object, data: Mapping[str, Any]) -> Any:
        """Value of the attribute. Null and an empty text count as not given.

        :param data: the section in the file; it conforms to the schema.
        """
        given = self.given(data)
        if given is None or given == "":
            return self.default_for(section)
        return given if self.convert is None else self.convert(given)


def key(
    kind: ValueType,
    default: Any,
    help: str,
    *,
    name: str = "",
    unit: str = "",
    default_text: str = "",
    convert: Callable[[Any], Any] | None = None,
    read: bool = True,
) -> Any:
    """Declare a key; the value of an attribute in the body of a `ConfigValue`.

    :param default: value of the attribute when the key is not given; or `REQUIRED`, or `From`.
    :param help: what it means, for the reference, in reStructuredText.
    :param name: in the file, default: the attribute with hyphens, or what ``name_of_key`` of the class makes of it.
        ``a.b`` is the key ``b`` in the mapping ``a``.
    :param unit: such as ``MiB``; that of `Seconds` need not be given.
    :param default_text: what the reference says of the default, where the value itself does not say it.
    :param convert: makes the attribute's value of the one that is given; default: ``float`` for a `Number`.
    :param read: False: `ConfigValue.read_keys` does not set the attribute, which is something else, or has no use.
    """
    if convert is None and isinstance(kind, Number):
        convert = float
    if isinstance(kind, Seconds):
        unit = "seconds"
    return Key(kind, default, help, name, unit, default_text, convert, read and not isinstance(kind, Sections))


def with_default(declared: Any, default: Any) -> Any:
    """The same key with another default."""
    return dataclasses.replace(declared, default=default, attribute="")


@functools.cache
def keys_of(section: type) -> tuple[Key, ...]:
    """The keys of a section, those of its base classes first.

    Class attributes: ``without_keys`` names keys of base classes that the section does not have, ``keys_also_of`` other
    sections whose keys stand in this one, too.
    """
    found: dict[str, Key] = {}
    for base in reversed(section.__mro__):
        found.update({value.name: value for value in vars(base).values() if isinstance(value, Key)})
    for other in getattr(section, "keys_also_of", ()):
        found = {**found, **{item.name: item for item in keys_of(other) if item.name not in found}}
    return tuple(item for name, item in found.items() if name not in getattr(section, "without_keys", ()))


def section_class(section: type, name: str) -> Any:
    """Class of the objects of a list of sections, by the name of the key."""
    (kind,) = (item.kind for item in keys_of(section) if item.name == name)
    if not isinstance(kind, Sections):
        raise TypeError(f"{name} of {section.__name__} is no list of sections")
    return kind.section


@functools.cache
def _read_keys_of(section: type) -> tuple[Key, ...]:
    """Those whose attributes `ConfigValue.read_keys` sets. A default may be that of another object: they come last."""
    read = [item for item in keys_of(section) if item.read and getattr(section, item.attribute, None) is item]
    return tuple(sorted(read, key=lambda item: isinstance(item.default, From)))


# `ConfigValue`: base of everything that is read from a configuration (reference/driver 6).


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
        for item in _read_keys_of(section or type(self)):
            setattr(self, item.attribute, item.value(self, data))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        ignored = _ignored(cast("Hashable", type(self)))
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


@functools.cache
def _ignored(cls: Any) -> frozenset[str]:
    """Found once a class: a configuration can have ten thousands of objects."""
    return frozenset(name for base in cls.__mro__ for name in vars(base).get("ignore_equality", ()))


# Words that may be meant by a mistyped one.


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` if a known word is near; else an empty text."""
    meant = nearest(word, known)
    return f", did you mean {meant!r}?" if meant else ""


def nearest(word: object, known: Iterable[str]) -> str:
    """The known word that is probably meant; empty = none is near."""
    import difflib

    matches = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else ""


# Tenants of ``allowed-tenants``.


def allows(tenants: Sequence[str] | None, tenant: str | None) -> bool:
    """Is a tenant in a list? A regular expression between slashes matches a whole name. Does not raise.

    :param tenants: None = there is no list, and every request is allowed.
    :param tenant: None = the request has none, and no list allows it.
    """
    return tenants is None or (tenant is not None and any(_matches(entry, tenant) for entry in tenants))


def _matches(entry: str, tenant: str) -> bool:
    pattern = regular_expression(entry)
    try:
        return entry == tenant if pattern is None else re.fullmatch(pattern, tenant) is not None
    except re.error:
        # Of a launcher with another Python: the configuration refuses it.
        return False


def regular_expression(entry: str) -> str | None:
    """What stands between the slashes of a text; None = it is a plain text."""
    return entry[1:-1] if len(entry) > 1 and entry[0] == entry[-1] == "/" else None


# Which keys of a configuration may hold a secret.

#: Values under keys with these words in them are never shown.
SECRET_WORDS: Final = ("password", "secret", "token", "env-vars", "api-key", "apikey", "credential")


def names_a_secret(path: Iterable[object]) -> bool:
    """May the value at a path of keys be a secret?"""
    return any(word in str(part).lower() for part in path for word in SECRET_WORDS)
