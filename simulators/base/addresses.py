# SPDX-License-Identifier: Apache-2.0
"""Addresses of simulated networks."""

from __future__ import annotations

import ipaddress
import itertools


class AddressPool:
    """Addresses of one subnet; one that was given back is used again as late as possible."""

    def __init__(self, cidr: str) -> None:
        self._network = ipaddress.ip_network(cidr)
        # The network's own address, the gateway and the broadcast address are not given out.
        self._size = self._network.num_addresses - 3
        self._next = itertools.cycle(range(self._size))
        self._taken: set[int] = set()

    @property
    def free(self) -> int:
        """How many addresses are left."""
        return self._size - len(self._taken)

    def take(self) -> str | None:
        """An address, None when all are taken."""
        if len(self._taken) >= self._size:
            return None
        number = next(number for number in self._next if number not in self._taken)
        self._taken.add(number)
        return str(self._network[number + 2])

    def give_back(self, address: str) -> None:
        """Ends the use of an address."""
        text = address.removeprefix("::ffff:")
        self._taken.discard(int(ipaddress.ip_address(text)) - int(self._network[0]) - 2)
