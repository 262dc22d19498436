# SPDX-License-Identifier: Apache-2.0
"""What records of nodes and requests share: known fields, unknown keys kept, lazy state time.

A record is a JSON object in a znode (reference/zookeeper 1). Readers ignore unknown keys and accept missing ones; we
also keep unknown keys, so that a newer peer's data survives our writes. Last, records that only we write.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from nodepool import fast_json
from nodepool.model import states
from nodepool.model.states import ImpossibleState


class ZkLock(NamedTuple):
    """A lock that is held (``nodepool.zk.transactions``).

    :param path: lock directory.
    :param contender: path of our contender znode; the lock is held as long as it exists.
    :param epoch: ``session_epoch`` of the client in the session that it was taken in.
    :param ephemeral: does it end with that session?
    """

    path: str
    contender: str
    epoch: int
    ephemeral: bool = True


class InvalidRecord(ValueError):
    """The data is valid JSON, but not a record of this kind."""


def optional_str(key: str, value: Any) -> str | None:
    """Check a field that is a string or null. Raises InvalidRecord."""
    if value is None or isinstance(value, str):
        return value
    raise InvalidRecord(f"{key} is a {type(value).__name__}, not a string")


def str_list(key: str, value: Any) -> list[str]:
    """Check a field that is a list of strings; null means empty. Raises InvalidRecord."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRecord(f"{key} is not a list of strings")
    for item in value:
        if not isinstance(item, str):
            raise InvalidRecord(f"{key} is not a list of strings")
    return value.copy()


def is_finite(value: float) -> bool:
    """Can a float hold it? JSON has whole numbers of any length, and Python reads ``Infinity`` and ``NaN`` too."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def optional_number(key: str, value: Any) -> float | None:
    """Check a field that is a finite number or null. Raises InvalidRecord."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value):
        raise InvalidRecord(f"{key} is not a number")
    return value


def optional_dict(key: str, value: Any) -> dict[str, Any] | None:
    """Check a field that is an object or null. Raises InvalidRecord."""
    if value is None or isinstance(value, dict):
        return value
    raise InvalidRecord(f"{key} is a {type(value).__name__}, not an object")


def whole_number(key: str, value: Any) -> int:
    """Check a field that is a whole number. Raises InvalidRecord."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRecord(f"{key} is not a whole number")
    return value


def _optional_whole_number(key: str, value: Any) -> int | None:
    return None if value is None else whole_number(key, value)


#: Declared type of a field of a `Record` -> check of what is stored for it; None = anything may be.
_CHECKS: Final[Mapping[str, Callable[[str, Any], Any] | None]] = {
    "str | None": optional_str,
    "float | None": optional_number,
    "int": whole_number,
    "int | None": _optional_whole_number,
    "list[str]": str_list,
    "dict[str, Any] | None": optional_dict,
    "Any": None,
}


class ZnodeStat(NamedTuple):
    """What a record knows of its znode."""

    version: int
    mzxid: int


class NotStored(LookupError):
    """A record has no id yet: it was never stored."""


#: Key of who asked for a deletion. Zuul keeps keys that it does not know; released builders keep or drop them.
_DELETED_BY: Final = "deleted_by"


class Record:
    """Base of all records in ZooKeeper: nodes, requests, builds and uploads.

    Attributes besides the fields: ``id`` (name of the znode, None before it is stored), ``lock`` (the lock if we hold
    it, else None), ``version`` (of the znode's data as read or written last, None before), ``mzxid`` (ZooKeeper's
    number of the last change that was read, 0 before) and ``extra`` (unknown keys of the JSON object, kept).

    A stored record gets only a ``state`` that may follow the one that was read or written last (``MOVES``); another is
    refused with `ImpossibleState`. A new record may begin in any state, and what others have stored is read as it is.

    Who sets ``state`` gives it a new ``state_time``: the time of the next write (`to_dict`), because the model has
    no clock.

    The body of a class declares fields of the JSON object as ``name: type`` or ``name: type = default``. What is read
    must have the type (`_CHECKS`). Attributes of other types are of no concern here.
    """

    STATES: ClassVar[tuple[str, ...]] = ()
    #: Moves of a stored record: (from, to) -> reason; None = any.
    MOVES: ClassVar[Mapping[tuple[str, str], str] | None] = None
    #: Fields that are left out of the JSON object while they are None.
    LEFT_OUT: ClassVar[tuple[str, ...]] = ()
    #: Keys of the JSON object that are no declared fields.
    OTHER_KEYS: ClassVar[tuple[str, ...]] = ()
    #: Declared fields: name -> (default, check).
    _declared: ClassVar[Mapping[str, tuple[Any, Callable[[str, Any], Any] | None]]] = {}
    #: All keys that are known.
    _known: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        annotations = vars(cls).get("__annotations__", {})
        own = {name: (vars(cls).get(name), _CHECKS[kind]) for name, kind in annotations.items() if kind in _CHECKS}
        cls._declared = {**cls._declared, **own}
        cls._known = frozenset({"state", "state_time", *cls._declared, *cls.OTHER_KEYS})

    def __init__(self, id: str | None = None) -> None:
        # Not by `vars`: the dictionaries of all records share their keys, which is half of the memory of a small one.
        for name, (default, check) in self._declared.items():
            setattr(self, name, [] if check is str_list else default)
        self.id = id
        self.lock: ZkLock | None = None
        self.version: int | None = None
        self.mzxid = 0
        self._state = self.STATES[0]
        self._state_changed = True
        #: What was read or written last.
        self._stored_state = self._state
        self.state_time: float | None = None
        self.extra: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """``id`` of a record that is stored, e.g. as a key of tables. :raises NotStored: it is not."""
        if self.id is None:
            raise NotStored(f"a {type(self).__name__} that was never stored has no id")
        return self.id

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, value: str) -> None:
        if value not in self.STATES:
            raise TypeError(f"{value!r} is not a valid state")
        before, moves = self._stored_state, self.MOVES
        if self.version is not None and moves is not None and value != before and (before, value) not in moves:
            raise ImpossibleState(f"{type(self).__name__} {self.id}: {before} cannot become {value}")
        self._state = value
        self._state_changed = True

    def to_dict(self, now: float) -> dict[str, Any]:
        """The JSON object to store; gives a changed state its time.

        :param now: seconds since the epoch.
        """
        if self._state_changed:
            self.state_time = now
            self._state_changed = False
        self._stored_state = self._state
        declared = {name: getattr(self, name) for name in self._declared}
        data = {**self.extra, "state": self._state, "state_time": self.state_time, **declared}
        for name in self.LEFT_OUT:
            if data[name] is None:
                del data[name]
        return data

    def load(self, data: dict[str, Any]) -> None:
        """Overwrite this record's fields in place.

        :raises InvalidRecord: a field that decisions depend on has the wrong type.
        """
        state = data.get("state")
        if not isinstance(state, str) or state not in self.STATES:
            # Not a value of any length: this text goes into the log.
            raise InvalidRecord(f"state is {state[:40]!r}" if isinstance(state, str) else "state is not a string")
        self._state = self._stored_state = state
        self._state_changed = False
        self.state_time = optional_number("state_time", data.get("state_time"))
        for name, (default, check) in self._declared.items():
            value = data.get(name, default)
            setattr(self, name, value if check is None else check(name, value))
        self.extra = {} if data.keys() <= self._known else {k: v for k, v in data.items() if k not in self._known}

    def renew(self, fresh: Self) -> None:
        """Become what was read again; the lock stays."""
        lock = self.lock
        vars(self).update(vars(fresh))
        self.lock = lock

    # -- what drivers written for 11.0.0 call --

    def toDict(self) -> dict[str, Any]:
        """The JSON object as it is. Unlike in 11.0.0, a state gets its time with the next write."""
        copied = self.copy()
        copied._state_changed = False
        data = copied.to_dict(0.0)
        if "created_time" in data:
            data["created_time"] = getattr(self, "created_time", None)
        return data

    def updateFromDict(self, d: dict[str, Any]) -> None:
        """`load`."""
        self.load(d)

    @property
    def stat(self) -> ZnodeStat | None:
        """Of the znode as it was read or written last; None = never."""
        return None if self.version is None else ZnodeStat(self.version, self.mzxid)

    def copy(self) -> Self:
        """An independent copy; the lock handle, if any, is shared."""
        # One for each write: only what could be changed in place is copied one by one.
        other = object.__new__(type(self))
        values = vars(self).copy()
        for name in [name for name, value in values.items() if value.__class__ not in _PLAIN]:
            if isinstance(values[name], (list, dict)):
                values[name] = _copied(values[name])
        other.__dict__ = values
        return other


class DeletableRecord(Record):
    """A record that operators can have deleted: of a node, a build or an upload."""

    def delete(self, by: str) -> None:
        """An operator has it deleted. :param by: who asks for it."""
        self.state = states.DELETING
        self.extra = {**self.extra, _DELETED_BY: by}

    @property
    def deleted_by(self) -> str | None:
        """Who asked for the deletion, if an operator did."""
        by = self.extra.get(_DELETED_BY)
        return by if isinstance(by, str) else None


def _copied(value: Any) -> Any:
    """An independent copy of a JSON value; of lists and objects, ten times as fast as a deep copy."""
    if isinstance(value, dict):
        return {name: item if item.__class__ in _PLAIN else _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [item if item.__class__ in _PLAIN else _copied(item) for item in value]
    return copy.deepcopy(value)


#: Classes of values that no one changes in place.
_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


# Reads a JSON object into a dataclass and makes one of it, for records that only we write (status, events).

T = TypeVar("T")


class TypedRecord:
    """Base of dataclasses that are records of their own. `read` says which fields they may have."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object to store."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def of_record(cls, data: Mapping[str, Any]) -> Self:
        """Read a record. Keys that are missing have their defaults, and unknown ones are ignored.

        :raises InvalidRecord: a value has another type.
        """
        return read(cls, data)


def read(kind: type[T], data: Any) -> T:
    """Read a record. Keys that are missing have their defaults, and unknown ones are ignored.

    :param kind: a dataclass whose fields are texts, numbers, booleans, such dataclasses, ``X | None``, sequences and
        mappings of these.
    :raises InvalidRecord: a value has another type.
    """
    if not isinstance(data, Mapping):
        raise InvalidRecord(f"a {type(data).__name__}, not an object")
    hints = _hints(cast("Hashable", kind))
    return kind(**{name: _value(name, hints[name], value) for name, value in data.items() if name in hints})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """The types of the fields of a dataclass. To work them out takes longer than to read a record."""
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


def _value(name: str, hint: Any, value: Any) -> Any:
    """A JSON value as the type that a field has."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _value(name, next(kind for kind in inner if kind is not NoneType), value)
    if origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: _value(name, inner[1], item) for key, item in value.items()}
    elif origin is not None:
        if isinstance(value, list):
            return tuple(_value(name, inner[0], item) for item in value)
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value):
            return value
    elif hint in (int, str, bool):
        if type(value) is hint:
            return value
    else:
        return read(hint, value)
    raise InvalidRecord(f"{name} is a {type(value).__name__}")


def as_json(record: Any) -> bytes:
    """A record, or an object of JSON, as text. Raises ValueError: JSON has no such value."""
    try:
        return fast_json.dumps(record)
    except ValueError:
        # Texts of errors have anything in them, also half of a character.
        return json.dumps(plain(record), sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


def plain(record: Any) -> Any:
    """A record as an object of JSON. Mappings and sequences are copied, other values are not."""
    if is_dataclass(record):
        return {entry.name: plain(getattr(record, entry.name)) for entry in fields(record)}
    if isinstance(record, Mapping):
        return {key: plain(value) for key, value in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [plain(value) for value in record]
    return record
