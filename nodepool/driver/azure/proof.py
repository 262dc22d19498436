# SPDX-License-Identifier: Apache-2.0
"""Are VMs gone that lists do not show any more? Lists of Azure are late, so that alone proves nothing (AZ-11, CM-7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.azure.client import Arm
from nodepool.driver.azure.names import interface_name
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodepool.driver.azure.types import Interface

#: So many VMs are asked for one by one: the answer 404 is the proof.
FEW: Final = 1
#: From one of these calls to the next, in seconds.
PAUSE_SECONDS: Final = 1.5
#: VMs that one list of interfaces proves to be gone.
MANY: Final = 1000


class AbsenceProof:
    """For VMs that were in lists, whose deletion was accepted, and that a later list lacks.

    A VM cannot be without its network interface, and the interface says which VM it belongs to. So a VM that the list
    of VMs lacks, and to which no interface belongs, is gone: two services of Azure say so. For many VMs that is one
    call instead of one for each. All methods block; any thread may call them.
    """

    def __init__(self, client: Arm, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        #: When the last call of a proof began. One thread at a time uses it.
        self._looked_at = float("-inf")

    def look(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """For `nodepool.driver.framework.batches.Batches`: NotFound for each VM that is gone; nothing = not known yet.

        :param take: gives the names of VMs.
        """
        # Those that go meanwhile need no call of their own.
        self._client.calls.pause(self._looked_at + PAUSE_SECONDS - self._clock())
        self._looked_at = self._clock()
        names = take()
        if len(names) <= FEW:
            return {name: error for name in names if (error := self._ask(name)) is not None}
        used = names_used(self._client.interfaces())
        where = f"Provider {self._client.calls.provider}"
        return {
            name: CloudNotFound(f"{where}: {name} is gone, and its interface is free", code="NotFound", status=404)
            for name in names
            if interface_name(name) not in used
        }

    def _ask(self, name: str) -> Exception | None:
        try:
            self._client.vm(name)
        except LaunchError as error:
            return error
        return None


def names_used(interfaces: Iterable[Interface]) -> set[str]:
    """Names, in lower case, of the interfaces that belong to a VM. Pure."""
    return {interface.name.lower() for interface in interfaces if interface.used}
