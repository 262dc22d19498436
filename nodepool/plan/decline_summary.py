# SPDX-License-Identifier: Apache-2.0
"""Why did a request fail that every pool declined?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodepool.model.reasons import Reason, ReasonCode

#: Pools of one reason, and reasons, that are named.
MAX_POOLS: Final = 3
MAX_REASONS: Final = 5
#: Longest text of one reason.
MAX_TEXT: Final = 300
#: These say nothing of what is wrong where the request could have been served.
_LAST: Final = frozenset({ReasonCode.LABEL_UNKNOWN, ReasonCode.POOL_DISABLED, ReasonCode.POOL_WITHOUT_LAUNCHES})


def why_failed(answers: Mapping[str, Reason | None]) -> Reason:
    """What each pool answered, in one line: pools with the same reason together, those that tell most first.

    A pool that has not the label is no cause where another one has it. The code is that of the first reason.

    :param answers: pool, such as ``cloud-1/main``, -> why it declined; None = it is one of another launcher.
    """
    known = {pool: reason for pool, reason in answers.items() if reason is not None}
    elsewhere = [pool for pool, reason in answers.items() if reason is None]
    telling = {pool: reason for pool, reason in known.items() if reason.code is not ReasonCode.LABEL_UNKNOWN}
    said = telling if telling or elsewhere else known
    pools: dict[tuple[bool, str], list[str]] = {}
    for pool, reason in said.items():
        pools.setdefault((reason.code in _LAST, _cut(reason.text)), []).append(pool)
    parts = [f"{_listed(pools[key])}: {key[1]}" for key in sorted(pools, key=lambda key: key[0])]
    if len(parts) > MAX_REASONS:
        parts[MAX_REASONS:] = [f"{len(parts) - MAX_REASONS} more reasons"]
    if elsewhere:
        parts.append(f"{_listed(elsewhere)}: of another launcher, whose log says why")
    first = min(said.values() or known.values(), key=lambda reason: reason.code in _LAST)
    return Reason(first.code, "; ".join(parts), first.numbers)


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_POOLS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MAX_POOLS])} and {more} more"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
