# SPDX-License-Identifier: Apache-2.0
"""`HostCreation`: the launch of an instance with a dedicated host of its own (AW-5, AW-6).

::

    start -> allocating -> host -> (as other launches)
      ^                               |
      |                               v
      +------ (released) <----- no room for the instance: another place is tried with a host of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from nodepool.driver.aws.creation import AwsCreation
from nodepool.driver.aws.host_client import AVAILABLE, FAILED, AwsHost
from nodepool.driver.aws.instance import external_id
from nodepool.driver.aws.instances import AwsDeletion
from nodepool.driver.aws.launch_batch import token_of
from nodepool.driver.aws.launch_spec import run_arguments, with_tags
from nodepool.driver.framework.cloud_errors import CloudNoCapacity
from nodepool.driver.statemachine import CreationKey
from nodepool.driver.statemachine.creation_machine import REPEAT, REPEATS
from nodepool.driver.statemachine.inventory_machine import Step, cloud_is_away
from nodepool.exceptions import CloudUnavailableException, LaunchError, LaunchStatusException

#: Between two looks at a host that is being made ready.
LOOK_SECONDS: Final = 5.0
#: Looks without an answer in a row, after which the framework must know.
LOST_LOOKS: Final = 3


class HostCreation(AwsCreation):
    """With AllocateHosts, then RunInstances on the host. From the allocation on the node's record names the host."""

    ALLOCATING: ClassVar[str] = "allocating"
    HOST: ClassVar[str] = "host"

    _host_id: str | None = None
    _allocations = 0
    _lost_looks = 0
    _next_at = float("-inf")

    def steps(self) -> Mapping[str, Step]:
        return {
            **super().steps(),
            self.START: self._allocate,
            self.ALLOCATING: self._allocating,
            self.HOST: self._wait_for_host,
        }

    def _allocate(self) -> bool:
        self.call(self._allocated, self.cloud.creators)
        return self.go(self.ALLOCATING)

    def _allocated(self) -> str:
        """In a thread of the cloud. The token says which call it is: sent again, it allocates no second host."""
        key = self.key()
        while True:
            place = self.places()[0]
            try:
                return self.cloud.hosts.allocate(place, self._tags, token_of([key], place), self.permit)
            except CloudNoCapacity as error:
                if not self.another_place(error):
                    raise

    def _allocating(self) -> bool:
        if not self.calling:
            return self.reached(self._next_at) and self._allocate()
        if not self.answered:
            return False
        try:
            self._host_id = self.answer()
        except (CloudUnavailableException, OSError) as error:
            # One that was allocated all the same is found by its tags, when leaks are looked for.
            self._allocations += 1
            if self._allocations > REPEATS:
                raise
            self._next_at = self.clock() + REPEAT.pause(self._allocations)
            self.log.warning("The allocation of a host was not answered, it is sent again: %s", error)
            return self.reached(self._next_at)
        self.external_id = {"host": self._host_id}
        return self.go(self.HOST)

    def _wait_for_host(self) -> bool:
        """Look at the host until it can be used."""
        host_id = self._host_id
        assert host_id is not None
        if not self.calling:
            if self.reached(self._next_at):
                self.call(lambda: self.cloud.hosts.host(host_id))
            return False
        if not self.answered:
            return False
        self._next_at = self.clock() + LOOK_SECONDS
        self.reached(self._next_at)
        try:
            host: AwsHost = self.answer()
        except (LaunchError, OSError) as error:
            # One that was just allocated may not be known everywhere.
            self._lost_looks += 1
            if self._lost_looks >= LOST_LOOKS:
                raise
            self.log.debug("Host %s (%s): %s", host_id, "no answer" if cloud_is_away(error) else "unknown", error)
            return False
        self._lost_looks = 0
        if host.status in FAILED:
            raise LaunchStatusException(f"{self.where}: the dedicated host {host_id} is {host.status}")
        return host.status == AVAILABLE and self._start()

    def create(self, key: CreationKey) -> str:
        place = self.places()[0]
        arguments = run_arguments(self._label, place, self.image(), self._host_id)
        given = with_tags(arguments, self._tags, token_of([key], place))
        return self.cloud.client.run_instances(given, 1, self.permit)[0].id

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudNoCapacity):
            # The host is there, and AWS has no room on it.
            self.cloud.places.no_room(self._places[0])
        return super().refused(error)

    def begin_anew(self, error: LaunchError) -> float | None:
        """In another place, with another host, if there is no room for the instance. A step: it must not block."""
        pause = self.leave_place(error) if isinstance(error, CloudNoCapacity) else super().begin_anew(error)
        if pause is not None:
            self._host_id = None
            self._allocations = self._lost_looks = 0
            self._next_at = float("-inf")
        return pause

    def leftovers(self) -> AwsDeletion | None:
        """The instance, if there is one, and its host."""
        return AwsDeletion(self.cloud, self.external_id, self.log)

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id, self._host_id)
