# SPDX-License-Identifier: Apache-2.0
"""What a simulated world is made of, and what is done to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.layout import Layout, make_layout


class Move(NamedTuple):
    """After so many steps something is done to the world.

    :param kind: name of a method of `tests.model.moves.Moves` that begins with ``do_``.
    """

    gap: int
    kind: str
    number: int = 0


@dataclass(frozen=True)
class Setup:
    """:param order: whose turn it is: 0 = who can go on first; else a seed.

    :param max_servers: of each pool.
    :param sends_after_death: does the server get what a killed process had sent?
    :param pools: of the cloud provider: the second one has another label, too, the third one only that.
    :param cloud_limit: what the pools may have together.
    :param hosts: of a static provider, with two slots, one, two, ...
    :param quarantine_after: failed checks in a row that quarantine a host; 0 = none do.
    :param mixed: each pool of the cloud has one label, and requests ask for several.
    :param boot_seconds: from the creation of a server until it is up.
    :param slices: of a metastatic provider, on each of its backing nodes.
    """

    launchers: int = 2
    max_servers: int = 2
    min_ready: int = 0
    tenant_limit: int | None = None
    order: int = 0
    sends_after_death: bool = True
    pools: int = 1
    cloud_limit: int | None = None
    hosts: int = 0
    quarantine_after: int = 0
    slices: int = 0
    boot_seconds: float = 0.0
    mixed: bool = False

    def layout(self) -> Layout:
        return make_layout(
            pools=self.pools,
            max_servers=self.max_servers,
            hosts=self.hosts,
            min_ready=self.min_ready,
            tenant_limit=self.tenant_limit,
            cloud_limit=self.cloud_limit,
            slices=self.slices,
            quarantine_after=self.quarantine_after,
            mixed=self.mixed,
        )


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, violations: Sequence[str]) -> None:
        super().__init__("\n".join(violations))
