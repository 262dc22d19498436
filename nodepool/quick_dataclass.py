# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses that are quick to import: ``from nodepool.quick_dataclass import dataclass``.

The standard library writes and compiles six methods for each frozen class, which takes more than half a millisecond.
A command needs dozens of such classes, and most of its time would go there. Here all classes share the same methods.
Whatever works with dataclasses works with these: `dataclasses.fields`, `replace`, `asdict`, orjson.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

#: A field without a value.
_MISSING: Final = object()


class _Plan(NamedTuple):
    """What `_init` and the other methods need to know of a class.

    :param positional: names of fields that may be given by their place.
    :param blank: name -> default, or `_MISSING`; all fields in their order.
    :param factories: name -> what makes the default.
    :param required: names of fields without a default. ``shown``: of those that ``repr`` shows.
    :param compared: gets the values that count when two objects are compared.
    """

    positional: tuple[str, ...]
    blank: Mapping[str, Any]
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    required: tuple[str, ...]
    shown: tuple[str, ...]
    compared: Callable[[Mapping[str, Any]], Any]


def _quick(*, frozen: bool) -> Callable[[type[T]], type[T]]:
    """As `dataclasses.dataclass`, for frozen classes without ``InitVar`` and without fields that are not given.

    :param frozen: True; it stands there for type checkers and readers.
    """
    if not frozen:
        raise TypeError("only frozen classes")

    def make(cls: type[T]) -> type[T]:
        made: type[T] = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        for name, method in _METHODS.items():
            if name not in vars(cls):
                setattr(made, name, method)
        return made

    return make


def _make_plan(cls: Any) -> _Plan:
    fields = dataclasses.fields(cls)
    none = dataclasses.MISSING
    compared = [field.name for field in fields if field.compare]
    return _Plan(
        positional=tuple(field.name for field in fields if not field.kw_only),
        blank={field.name: _MISSING if field.default is none else field.default for field in fields},
        factories=tuple((field.name, field.default_factory) for field in fields if field.default_factory is not none),
        required=tuple(field.name for field in fields if field.default is none and field.default_factory is none),
        shown=tuple(field.name for field in fields if field.repr),
        compared=itemgetter(*compared) if compared else lambda _values: None,
    )


_plan: Final[Callable[[Any], _Plan]] = cache(_make_plan)


def _init(self: Any, /, *places: Any, **given: Any) -> None:
    plan = _plan(type(self))
    if places:
        if len(places) > len(plan.positional):
            raise TypeError(f"{type(self).__name__}() takes {len(plan.positional)} values, not {len(places)}")
        for name, value in zip(plan.positional, places, strict=False):
            if name in given:
                raise TypeError(f"{type(self).__name__}() got two values for {name}")
            given[name] = value
    values = vars(self)
    values.update(plan.blank)
    values.update(given)
    if len(values) > len(plan.blank):
        raise TypeError(f"{type(self).__name__}() has no {', '.join(sorted(given.keys() - plan.blank.keys()))}")
    for name, make in plan.factories:
        if name not in given:
            values[name] = make()
    for name in plan.required:
        if values[name] is _MISSING:
            raise TypeError(f"{type(self).__name__}() needs {name}")


def _repr(self: Any) -> str:
    return (
        f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in _plan(type(self)).shown)})"
    )


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    compared = _plan(type(self)).compared
    return compared(vars(self)) == compared(vars(other))


def _hash(self: Any) -> int:
    return hash(_plan(type(self)).compared(vars(self)))


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: Final = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _quick
