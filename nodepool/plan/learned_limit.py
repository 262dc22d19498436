# SPDX-License-Identifier: Apache-2.0
"""How many nodes does a cloud take that says "quota used up", but not where the limit is?

What it refused tells: with so many nodes it is full. A node that goes makes room for another one at once. Whether
there is room for more than that, because somebody else freed it, is found out now and then with one launch, the probe.
"""

from __future__ import annotations

from typing import Final

from nodepool.plan.backoff import Backoff

#: From a refusal to the next probe.
PROBE: Final = Backoff(1.0, 30.0)


class LearnedLimit:
    """Of one kind of node. Pure: each method gets the time, in seconds. The owner serializes the calls."""

    def __init__(self) -> None:
        #: With so many the cloud was full.
        self.nodes = 0
        #: The first refusal and the probes that the cloud refused.
        self._refusals = 1
        self._probe_at = float("-inf")
        self._probing = False

    def refused(self, now: float, nodes: int) -> None:
        """The cloud refused a node when there were so many others."""
        self.nodes = nodes
        if self._probing:
            self._probing = False
            self._refusals += 1
        self._probe_at = max(self._probe_at, now + PROBE.pause(self._refusals))

    def allows(self, now: float, nodes: int) -> bool:
        """May another node be launched while there are so many? The probe may, once in a while."""
        if nodes < self.nodes:
            return True
        if now < self._probe_at:
            return False
        self._probing = True
        self._probe_at = now + PROBE.pause(self._refusals)
        return True
