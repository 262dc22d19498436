# SPDX-License-Identifier: Apache-2.0
"""JSON texts by orjson: read where it finds exactly what the standard library finds; written for records of our own."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

#: All digits as zeros, and what a number can stand behind as a colon.
_SHAPE: Final = bytes.maketrans(b"123456789" + b"[,- \t\r\n", b"0" * 9 + b":" * 7)
#: Of a whole number that may not fit into 64 bits: orjson makes a float of it.
_MANY_DIGITS: Final = b"0" * 19
_LONG_NUMBER: Final = b":" + _MANY_DIGITS


def loads(data: bytes) -> Any:
    """The value in a JSON text in UTF-8.

    :raises ValueError: it is none, or it has something that only `json` reads: ``NaN``, ``Infinity``, half of a
        surrogate pair, a number of many digits, hundreds of levels. `loads_any` reads those, too.
    """
    shape = data.translate(_SHAPE)
    if _LONG_NUMBER in shape or shape.startswith(_MANY_DIGITS):
        raise ValueError("a number of many digits")
    return orjson.loads(data)


def loads_any(data: bytes) -> Any:
    """The same, slowly where it has something that only `json` reads. Raises ValueError, RecursionError: it is none."""
    try:
        return loads(data)
    except ValueError:
        return json.loads(data)


def dumps(value: Any) -> bytes:
    """A JSON text in UTF-8, with sorted keys. Dataclasses are objects; a number that JSON does not know is null.

    :raises ValueError: it is something else than dataclasses, dictionaries, lists, tuples, texts, numbers, booleans and
        None, or a text has half of a surrogate pair.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ValueError(str(error)) from None
