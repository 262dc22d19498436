# SPDX-License-Identifier: Apache-2.0
"""The rule for text that comes from users, as a part of a statsd name (reference/metrics)."""

from __future__ import annotations

# Requestors and tenants are named freely by clients: what has a meaning in a name or in the protocol goes.
_NORMALISED = str.maketrans(dict.fromkeys(".:|\r\n", "_"))
# Other names are kept as they are, except for what would end a line early and make a wrong metric of the rest:
# labels and providers of nodes come from ZooKeeper, where anybody may have written them.
_PLAIN = str.maketrans(dict.fromkeys("|\r\n", "_"))


def normalise(text: str) -> str:
    """Text of a requestor or tenant as one part of a name: ``.`` and ``:`` become ``_``."""
    return text.translate(_NORMALISED)


def plain(text: str) -> str:
    """Any other text as a part of a name: unchanged, dots included."""
    return text.translate(_PLAIN)
