# SPDX-License-Identifier: Apache-2.0
"""JSON texts, read by orjson where it finds exactly what the standard library finds."""

from __future__ import annotations

from typing import Any, Final

import orjson

#: All digits as zeros, and as many of them as a number has that may not fit into 64 bits: orjson makes a float of it.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19


def loads(data: bytes) -> Any:
    """The value in a JSON text in UTF-8.

    :raises ValueError: it is none, or it has something that only `json` reads: ``NaN``, ``Infinity``, half of a
        surrogate pair, a number of many digits, hundreds of levels. Whoever wants to read those too asks `json` then.
    """
    if _LONG_NUMBER in data.translate(_DIGITS):
        raise ValueError("a number of many digits")
    return orjson.loads(data)
