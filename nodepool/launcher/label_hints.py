# SPDX-License-Identifier: Apache-2.0
"""`LabelHints`: what to do about labels that no pool has, or that no pool has together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.config.problems import did_you_mean

if TYPE_CHECKING:
    from nodepool.config.objects import Label
    from nodepool.plan.assignment import PoolInfo

#: Labels whose hints are remembered: to search thousands of labels for a similar one takes milliseconds.
MAX_HINTS: Final = 1000


class LabelHints:
    """Any thread may ask. What two threads find at the same time is the same.

    :param registered: all registered pools: the same object as long as nothing changes.
    :param configured: labels of the configuration of this launcher.
    """

    def __init__(
        self, registered: Callable[[], Sequence[PoolInfo]], configured: Callable[[], Mapping[str, Label]]
    ) -> None:
        self._registered = registered
        self._configured = configured
        #: The pools that were looked at, their labels, and the hints.
        self._known: tuple[Sequence[PoolInfo], frozenset[str], dict[str, str]] = ([], frozenset(), {})

    def hint(self, labels: Collection[str]) -> str:
        """What to do about labels that no pool can serve, as an addition to a sentence.

        :param labels: of one request.
        :return: empty if one pool has all of them.
        """
        pools = self._registered()
        known = self._known
        if known[0] is not pools:
            served = frozenset(label for pool in pools for label in pool.labels)
            known = self._known = (pools, served, {})
        _, served, hints = known
        told = []
        for label in sorted(set(labels) - served):
            if label not in hints:
                if len(hints) >= MAX_HINTS:
                    hints.clear()
                hints[label] = self._hint(label, served)
            told.append(hints[label])
        wanted = set(labels)
        if not told and not any(wanted <= pool.labels for pool in pools):
            told.append(f"no pool has all of {', '.join(sorted(wanted))}: the nodes of a request come from one pool")
        return "".join(f"; {text}" for text in told)

    def _hint(self, label: str, served: Collection[str]) -> str:
        configured = self._configured()
        if label in configured:
            if configured[label].pools:
                return f"no pool that runs has {label}; nodepool status says why the provider that has it is not served"
            return f"no pool that runs has {label}, although it is among the configured labels: add it to a pool"
        similar = did_you_mean(label, {*served, *configured})
        return f"no pool has {label}{similar or ': correct the nodeset in Zuul, or add the label'}"
