# SPDX-License-Identifier: Apache-2.0
"""`AwaitedContent`: when to look at what was made for a node, where no watch tells of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: From one look at a pod or secret to the next: this part of the time since it was made, within these limits. So the
#: number of looks grows with the logarithm of that time, however many other launches make lists come often.
PAUSE_SHARE: Final = 0.25
SHORTEST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 3.0

_NEVER: Final = float("inf")


@dataclass
class AwaitedContent:
    """A launch that waits for its pod, and for its token. All times are monotonic seconds.

    :param pod: name of the pod; None = there is none.
    :param has_token: the token was seen.
    """

    pod: str | None
    has_token: bool = False
    since: float = _NEVER
    look_at: float = _NEVER

    def made(self, now: float) -> None:
        """All was made; before that there is nothing to see."""
        self.since = self.look_at = now

    def is_due(self, now: float) -> bool:
        """Look now?"""
        return now >= self.look_at

    def looked(self, now: float) -> None:
        """It was looked at, and more must come."""
        self.look_at = now + min(LONGEST_SECONDS, max(SHORTEST_SECONDS, (now - self.since) * PAUSE_SHARE))
