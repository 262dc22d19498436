# SPDX-License-Identifier: Apache-2.0
"""What all parts of the simulated region share."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from simulators.aws.query_protocol import iso_time
from simulators.aws.settings import AwsSettings
from simulators.base.core import SimulationCore

ACCOUNT = "123456789012"


class RegionCore(SimulationCore[AwsSettings]):
    """Ids and times as AWS writes them.

    :param region: name; its zones are that with a letter.
    """

    def __init__(
        self,
        knobs: AwsSettings,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        region: str = "us-east-1",
        zones: str = "abc",
    ) -> None:
        super().__init__(knobs, seed, clock)
        self.region = region
        self.zones = tuple(f"{region}{letter}" for letter in zones)
        self._numbers = itertools.count(1)

    def new_id(self, kind: str) -> str:
        """Such as ``i-0123456789abcdef0`` for ``i``; the same in each run."""
        number = next(self._numbers)
        # Far apart, as those of AWS are: nothing may count on their order.
        return f"{kind}-{(number * 0x9E3779B97F4A7C15) % (1 << 64):016x}0"

    def stamp(self) -> str:
        """Now: UTC, by turns with milliseconds and without."""
        text = iso_time(self.now())
        return self.turn("time", text, f"{text[:19]}Z")
