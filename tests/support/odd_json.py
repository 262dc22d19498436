# SPDX-License-Identifier: Apache-2.0
"""Whole records and objects with odd values in them, as other programs may store or write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

#: Pieces of JSON text, by what is special about them.
TRAPS: tuple[str, ...] = (
    *("Infinity", "-Infinity", "NaN", "1e999", "-1e308", "1e-400", "-0.0", "-0"),
    # Too long for a float, and for ``str``.
    *("1" + "0" * 400, "-1" + "0" * 400, "9" * 4000, "9" * 5000, "0.1e5"),
    # Deep, on both sides of the limit of the decoder and of the interpreter's stack.
    *(f"{'[' * depth}{']' * depth}" for depth in (5, 49, 50, 60, 200, 320, 900, 1100, 20_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (48, 60, 320, 20_000)),
    *(
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"a\\u0000b"',
        '"\\r\\n2026-01-01 ERROR x: y"',
        '"\\u001b[2J"',
        '"\\u2028\\u202e"',
    ),
    *(
        '"../requests/200-0000000001"',
        '".."',
        '"/"',
        '""',
        '"%s%n{0}"',
        '"Infinity"',
        '"' + "9" * 5000 + '"',
        '"1e400"',
    ),
    *('"' + "x" * 3000 + '"', "[null]", '[[["a"]]]', '{"": {}}', "true", "null", "[]", "{}", "0", "-1", "65536"),
)

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), _SCALARS, max_size=3)

#: Any value, as JSON text.
values = st.sampled_from(TRAPS) | _VALUES.map(json.dumps)


@st.composite
def records(draw: st.DrawFn, good: dict[str, Any], keys: Sequence[str] = ()) -> bytes:
    """A good record with a few keys replaced, removed, added, or there twice.

    :param keys: more keys that mean something, besides those of ``good``.
    """
    pairs = [(key, json.dumps(value)) for key, value in good.items()]
    known = [*good, *keys]
    removed = draw(st.sets(st.sampled_from(known), max_size=2))
    pairs = [pair for pair in pairs if pair[0] not in removed]
    pairs += draw(st.lists(st.tuples(st.sampled_from([*known, "new_key"]), values), max_size=4))
    text = "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs) + "}"
    data = text.encode()
    if draw(st.integers(0, 9)) == 0:
        data = data[: draw(st.integers(0, len(data)))] + draw(st.binary(max_size=3))
    return data
