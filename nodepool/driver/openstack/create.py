# SPDX-License-Identifier: Apache-2.0
"""The launch of one server, in steps.

::

    start -> submitting -> building -> addressing -> complete
                 |          ^    |
                 v          |    v
             searching -----+  broken
     (the answer was lost)   (status ERROR: ask why)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.openstack import spec, verdicts
from nodepool.driver.openstack.errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.views import ACTIVE, ERROR, Flavor, Server
from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import (
    LaunchError,
    LaunchNetworkException,
    LaunchStatusException,
)

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.openstack.config import OpenStackLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: A machine that waits is woken; this is for the case that it is not.
SAFETY_SECONDS: Final = 5.0
#: A machine that was not advanced for so long was given up: nothing may be made for it any more.
GIVEN_UP_SECONDS: Final = 30.0
#: How long, and in how many complete lists, to look for a server whose creation was not answered.
SEARCH_SECONDS: Final = 6.0
SEARCH_LISTS: Final = 3
#: After so many lists in a row that failed the search is over.
SEARCH_FAILURES: Final = 2
#: How long a server may be absent from lists before it is asked for.
ABSENT_SECONDS: Final = 15.0
#: How long an active server may have no address.
NO_ADDRESS_SECONDS: Final = 15.0


class CreateMachine(StateMachine):
    """See the module.

    :param image_id: of the upload; None = the label's cloud image.
    :param metadata: keys that say whose the server is; they win over those of the user (D-1, O-11).
    :param az: availability zone, or None.
    """

    SUBMITTING: ClassVar[str] = "submitting"
    SEARCHING: ClassVar[str] = "searching"
    BUILDING: ClassVar[str] = "building"
    ADDRESSING: ClassVar[str] = "addressing"
    BROKEN: ClassVar[str] = "broken"
    COMPLETE: ClassVar[str] = "complete"

    def __init__(
        self,
        cloud: OpenStackCloud,
        hostname: str,
        label: OpenStackLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__()
        self._cloud = cloud
        self._hostname = hostname
        self._label = label
        self._image_id = image_id
        self._metadata = dict(metadata)
        self._request = request
        self._az = az
        self._log = log
        self._clock = clock
        self._node_id = str(metadata.get("nodepool_node_id", ""))
        self._advanced_at = clock()
        self._since = clock()
        self._job: Future[Any] | None = None
        self._lost: CloudAway | None = None
        self._lists = 0
        self._failed_before = 0
        self._last_list = float("-inf")
        self._flavor: Flavor | None = None
        self._floating_ip: str | None = None
        self._marked = False
        self._waiter: Any = None
        self._where = f"provider {cloud.config.name}, label {label.name}"

    # -- the framework calls --

    def advance(self) -> OpenStackInstance | None:
        self._advanced_at = self._clock()
        self.next_advance_seconds = SAFETY_SECONDS
        if self._waiter is not None:
            self._cloud.inventory.touch(self._waiter)
        steps: dict[str, Callable[[], OpenStackInstance | bool]] = {
            self.START: self._start,
            self.SUBMITTING: self._submitting,
            self.SEARCHING: self._searching,
            self.BUILDING: self._building,
            self.ADDRESSING: self._addressing,
            self.BROKEN: self._ask_why,
        }
        try:
            while True:
                result = steps[self.state]()
                if isinstance(result, OpenStackInstance):
                    self._end_wait(True)
                    self._go(self.COMPLETE)
                    self.complete = True
                    return result
                if not result:
                    return None
        except Exception:
            # Whatever ended it, the list of servers must not go on for this one.
            self._end_wait(False)
            raise

    # -- steps: True = look at the new state at once, False = wait --

    def _start(self) -> bool:
        self._cloud.claims.begin(self._node_id)
        self._submit(self._create, self._cloud.creators)
        return self._go(self.SUBMITTING)

    def _submitting(self) -> bool:
        if not self._done():
            return False
        try:
            server_id, self._flavor = self._result()
        except CloudAway as error:
            if not error.maybe_done:
                self._cloud.claims.refused(self._node_id)
                raise
            self._log.warning("The creation of the server was not answered, looking for it: %s", error)
            self._lost = error
            self._failed_before = self._cloud.inventory.failed_lists
            self._begin_wait(None, complete=True)
            return self._go(self.SEARCHING)
        except Exception as error:
            self._cloud.claims.refused(self._node_id)
            raise self._refused(error) from error
        self._cloud.claims.answered(self._node_id, server_id)
        return self._created(server_id)

    def _searching(self) -> bool:
        """Two servers for one node must never be: find the one that may have been made."""
        assert self._lost is not None
        inventory = self._cloud.inventory
        found = self._cloud.claims.found(self._node_id, inventory.of_node(self._node_id))
        if found is not None:
            self._log.info("Found server %s, whose creation was not answered", found)
            self._flavor = self._cloud.known_flavor(self._label)
            return self._created(found)
        if inventory.complete_at > max(self._last_list, self._since):
            self._last_list = inventory.complete_at
            self._lists += 1
        waited = self._clock() - self._since
        searched = waited >= SEARCH_SECONDS and self._lists >= SEARCH_LISTS
        # While the cloud is away nothing can be found, and the framework must know; it asks once more, too.
        # Failures of before say nothing: nobody may have asked since the end of an outage.
        failures = min(inventory.failures, inventory.failed_lists - self._failed_before)
        if not searched and failures < SEARCH_FAILURES and waited < 10 * SEARCH_SECONDS:
            return False
        self._cloud.claims.lost(self._node_id)
        self._lost.searched = searched
        raise self._lost

    def _created(self, server_id: str) -> bool:
        self.external_id = server_id
        self._begin_wait(server_id)
        return self._go(self.BUILDING)

    def _building(self) -> bool:
        server = self._cloud.inventory.get(self.external_id)
        if server is None:
            return self._absent()
        # Whoever asked for the server while it was absent has the answer.
        self._job = None
        if server.status == ERROR:
            return self._go(self.BROKEN)
        self._mark_volumes(server)
        if server.status != ACTIVE:
            return False
        return self._go(self.ADDRESSING)

    def _absent(self) -> bool:
        """Not in the lists (yet): ask for the server itself after a while."""
        if self._cloud.inventory.is_gone(self.external_id):
            raise LaunchStatusException(f"{self._where}: server {self.external_id} was deleted by somebody else")
        if self._job is not None and self._job.done():
            try:
                self._result()
            except CloudNotFound:
                self._cloud.inventory.set_gone(self.external_id)
                raise LaunchStatusException(f"{self._where}: server {self.external_id} is gone") from None
            except CloudAway as error:
                self._log.debug("Server %s: %s", self.external_id, error)
            self._since = self._clock()
        elif self._job is None and self._clock() - self._since > ABSENT_SECONDS:
            server_id = self.external_id
            self._submit(lambda: self._cloud.api.server(server_id), self._cloud.others)
        return False

    def _ask_why(self) -> bool:
        """Status ERROR: raise the reason.

        Lists seldom have it: Nova looks for faults in one of its databases only, so those of servers that found no
        host, or those of all others, are missing there. The server itself has it.
        """
        server_id = self.external_id
        server = self._cloud.inventory.get(server_id)
        if server is None or server.status != ERROR:
            self._job = None
            return self._go(self.BUILDING)
        if server.fault:
            raise verdicts.error_status(self._where, server)
        if self._job is None:
            self._submit(lambda: self._cloud.api.server(server_id), self._cloud.others)
        if not self._done():
            return False
        try:
            server = self._result()
        except LaunchError as error:
            self._log.debug("Server %s: its fault is not known: %s", server_id, error)
        raise verdicts.error_status(self._where, server)

    def _addressing(self) -> OpenStackInstance | bool:
        server = self._cloud.inventory.get(self.external_id)
        if server is None or server.status == ERROR:
            return self._go(self.BUILDING)
        if self._job is not None:
            if not self._done():
                return False
            self._floating_ip = self._result()
            return self._instance(server)
        if not server.addresses:
            return self._no_address()
        if self._label.pool.auto_floating_ip and self._cloud.floating.needed(server):
            note = f"nodepool {self._cloud.config.name} node {self._node_id}"
            self._submit(lambda: self._cloud.floating.attach(server, note), self._cloud.others)
            return False
        return self._instance(server)

    def _no_address(self) -> bool:
        # What Nova knows of addresses may come late, and not show as a change.
        self._waiter.complete = True
        if self._clock() - self._since > NO_ADDRESS_SECONDS:
            raise LaunchNetworkException(
                f"{self._where}: server {self.external_id} is active, but has no address; "
                "check the networks of the label and their subnets"
            )
        return False

    def _instance(self, server: Server) -> OpenStackInstance:
        flavor = self._flavor
        volume = self._label.volume_size if self._label.boot_from_volume else 0
        return OpenStackInstance(
            server,
            usage(
                server.cores or (flavor.cores if flavor else 0),
                server.ram or (flavor.ram if flavor else 0),
                len(server.volumes) or (1 if volume else 0),
                volume,
            ),
            self._cloud.facts.networks.known() or [],
            self._cloud.networks,
            cloud_name=self._cloud.config.cloud,
            region=self._cloud.region,
            floating_ip=self._floating_ip,
        )

    # -- the creation; in a thread of the cloud --

    def _create(self) -> tuple[str, Flavor]:
        label, facts = self._label, self._cloud.facts
        flavor = facts.flavor_of(label)
        image_id = self._image_id or facts.image_of(label)
        facts.networks.get()
        networks = facts.network_ids(label) or [n for n in [self._cloud.default_network()] if n]
        metadata = spec.server_metadata(self._cloud.config.name, label, self._metadata, self._request, self._log)
        body = spec.server_body(self._hostname, label, flavor, image_id, networks, metadata, self._az)
        server_id = self._cloud.api.create_server(body, self._permit)
        if self._clock() - self._advanced_at > GIVEN_UP_SECONDS + self._cloud.api_timeout:
            self._log.warning("Server %s was made for a launch that was given up, deleting it", server_id)
            self._cloud.api.delete_server(server_id)
        return server_id, flavor

    def _permit(self) -> None:
        """Asked right before the call, which may have waited for minutes for its turn: is the server still wanted?"""
        if self._clock() - self._advanced_at > GIVEN_UP_SECONDS:
            raise CloudAway(f"{self._where}: the launch was given up before its turn came", maybe_done=False)
        if not self.wanted():
            raise LaunchStatusException(f"{self._where}: the launch is not wanted any more, or ZooKeeper is lost")

    def _refused(self, error: Exception) -> Exception:
        """What a refused creation means (O-2, O-3)."""
        if not isinstance(error, CloudRefused):
            return error
        if error.status in (400, 404):
            self._cloud.facts.clear()
        return verdicts.refusal_of(self._where, self._label, self._az, error)

    def _mark_volumes(self, server: Server) -> None:
        """A volume that Nova made for us must say whose it is, or nobody could tell when it is left over."""
        if self._marked or not self._label.boot_from_volume or not server.volumes:
            return
        self._marked = True
        self._cloud.volumes.begin(server.volumes, self._metadata)

    # -- helpers --

    def _go(self, state: str) -> bool:
        self.state = state
        self._since = self._clock()
        return True

    def _submit(self, call: Callable[[], Any], executor: Any) -> None:
        self._job = executor.submit(call)
        self._job.add_done_callback(lambda _: self.wake())

    def _done(self) -> bool:
        return self._job is not None and self._job.done()

    def _result(self) -> Any:
        assert self._job is not None
        job, self._job = self._job, None
        return job.result()

    def _begin_wait(self, server_id: str | None, complete: bool = False) -> None:
        self._end_wait(False)
        kind = "search" if server_id is None else "boot"
        self._waiter = self._cloud.inventory.wait_for(kind, lambda: self.wake(), server_id, complete)

    def _end_wait(self, happened: bool) -> None:
        if self._waiter is not None:
            self._cloud.inventory.done(self._waiter, happened)
            self._waiter = None
