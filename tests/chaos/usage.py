# SPDX-License-Identifier: Apache-2.0
"""What the launchers need before the faults and after them: it must be about the same (nothing piles up)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

#: How much more a launcher may have at the end than at the beginning, when it had served one node of each kind: threads
#: that wait for the next burst, a connection kept for each of them, in MiB what a burst leaves in the allocator.
GROWTH: Mapping[str, int] = {"threads": 30, "files": 30, "memory": 60}
#: With larger limits, and so larger bursts, there may be more of these, in proportion.
OF_BURSTS = ("threads", "files")

Usage = Mapping[str, int]


def grown(before: Sequence[Usage], after: Sequence[Usage], share: float = 1.0) -> Iterator[str]:
    """What has grown too much, a sentence each.

    :param before: of each launcher, as `tests.support.process.ChildProcess.usage` gives it; ``after`` too.
    :param share: how many times larger the limits are than the usual ones.
    """
    for number, (first, last) in enumerate(zip(before, after, strict=True)):
        for what, most in GROWTH.items():
            if last[what] > first[what] + most * (max(1.0, share) if what in OF_BURSTS else 1.0):
                yield f"launcher {number} has {last[what]} {what}, {first[what]} before the faults"
