# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes as a cloud (rules T).

First the provider, which gives ZooKeeper to its adapter, then the adapter with its instances, then what becomes of
backing nodes whose provider is removed for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.metastatic import slots
from nodepool.driver.metastatic.allocator import SlotAllocator
from nodepool.driver.metastatic.slots import BackingData, SlotRequest, owner_of
from nodepool.driver.statemachine import Adapter, Instance, Resource, StateMachine, StateMachineProvider
from nodepool.model import states
from nodepool.model.node import QuotaInformation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nodepool.driver.config import LabelSettings
    from nodepool.driver.metastatic.config import MetastaticLabel, MetastaticProviderConfig
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.launch import NodeLaunch
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest
    from nodepool.zk.zookeeper import ZooKeeper


class MetastaticProvider(StateMachineProvider):
    """Nodes on slots of nodes that other providers have made."""

    adapter: MetastaticAdapter
    provider: MetastaticProviderConfig

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to look after backing nodes; does not block.

        Without a cache, in a command, nothing is looked after: the provider is there to delete one node.
        """
        super().start(zk_conn)
        if zk_conn.cache is not None:
            rules = self.provider.rules()
            self.adapter.allocator = SlotAllocator(
                zk_conn, zk_conn.cache, self.name, rules, self.scheduler, self.log, self.wake_workers, self.lost.ended
            )
        self.adapter.zk = zk_conn
        if self.adapter.allocator is not None:
            self.adapter.allocator.start()

    def idle(self) -> None:
        super().idle()
        if self.adapter.allocator is not None:
            self.adapter.allocator.idle()

    def stop(self) -> None:
        if self.adapter.allocator is not None:
            self.adapter.allocator.drain()
        super().stop()

    def heldLabels(self, pool_name: str) -> Mapping[str, Reason]:
        """T-13."""
        pool, allocator = self.provider.pools.get(pool_name), self.adapter.allocator
        return {} if allocator is None or pool is None else allocator.held_labels(pool.labels.values())

    def stopWaiting(self, node_ids: Collection[str]) -> None:
        """T-13: launches that wait for a backing node that nobody has begun to make."""
        if self.adapter.allocator is not None:
            self.adapter.allocator.slot_requests.stop_waiting(node_ids)

    def launch_ended(self, launch: NodeLaunch) -> None:
        super().launch_ended(launch)
        if self.adapter.allocator is not None:
            self.adapter.allocator.slot_requests.drop(launch.node.key)


# `MetastaticAdapter`: the "cloud" whose instances are slots of backing nodes.

#: A machine that waits is woken; this is the safety net.
WAITING_SECONDS: Final = 30.0


class SlotInstance(Instance):
    """A slot, seen as a machine: it is the backing node, but for its id (T-5)."""

    def load(self, node_id: str, metadata: dict[str, str], backing: Node, slot: int) -> None:
        self.ready = True
        self.external_id = node_id
        self.metadata = metadata
        self.slot = slot
        self.driver_data = slots.driver_data(metadata, backing.key, slot, node_id)
        for name in COPIED:
            setattr(self, name, getattr(backing, name))
        for name in COPIED_IF_SET:
            if getattr(backing, name) is not None:
                setattr(self, name, getattr(backing, name))
        self.host_keys = list(backing.host_keys)
        self.node_attributes = dict(backing.attributes or {})

    def getQuotaInformation(self) -> QuotaInformation:
        return QuotaInformation(instances=1)


COPIED: Final = (
    *("interface_ip", "public_ipv4", "public_ipv6", "private_ipv4", "private_ipv6"),
    *("cloud", "region", "az", "host_id"),
)
#: Where the framework has a default of its own.
COPIED_IF_SET: Final = ("username", "python_path", "shell_type", "connection_type", "connection_port")


class WaitForSlot(StateMachine):
    """Waits until the `SlotAllocator` has a slot."""

    def __init__(self, allocator: SlotAllocator, label: MetastaticLabel, metadata: dict[str, str], log: Log) -> None:
        super().__init__()
        self._allocator = allocator
        self._label = label
        self._metadata = metadata
        self._log = log
        self._ticket: SlotRequest | None = None

    def advance(self) -> Instance | None:
        node_id = self._metadata["nodepool_node_id"]
        if self._ticket is None:
            self.external_id = node_id
            self._ticket = SlotRequest(node_id, self._label.kind, self.wake, self._log)
            self.state = "waiting for a slot"
            self.next_advance_seconds = WAITING_SECONDS
            self._allocator.slot_requests.add(self._ticket)
            return None
        if self._ticket.error is not None:
            raise self._ticket.error
        if self._ticket.place is None:
            return None
        self.complete = True
        return SlotInstance(node_id, self._metadata, *self._ticket.place)


class GiveSlotBack(StateMachine):
    """Frees the slot of a node.

    There is nothing to do when the node is about to go: a slot belongs to a node as long as its znode exists.

    :param allocator: None = in a command, which only deletes nodes.
    """

    def __init__(self, adapter: MetastaticAdapter, node_id: Any) -> None:
        super().__init__()
        self._adapter = adapter
        self.external_id = node_id

    def advance(self) -> None:
        allocator, node_id = self._adapter.allocator, str(self.external_id)
        if allocator is None:
            self.complete = True
        elif self.state == self.START:
            if self._adapter.stays(node_id):
                self.state = "giving the slot back"
                self.next_advance_seconds = WAITING_SECONDS
                allocator.slot_requests.give_back(node_id, self.wake)
            else:
                self.complete = True
        elif allocator.slot_requests.is_given_back(node_id):
            self.complete = True


class MetastaticAdapter(Adapter):
    """Knows ZooKeeper, once the provider was started."""

    advance_threads = 8

    def __init__(self, provider_config: MetastaticProviderConfig) -> None:
        super().__init__(provider_config)
        self._provider_name = provider_config.name
        #: None = the provider was not started.
        self.zk: ZooKeeper | None = None
        #: None = likewise, or in a command.
        self.allocator: SlotAllocator | None = None

    def getCreateStateMachine(
        self,
        hostname: str,
        label: MetastaticLabel,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest,
        az: str | None,
        log: Log,
    ) -> StateMachine:
        if self.allocator is None:
            raise RuntimeError(f"provider {self._provider_name} was not started")
        return WaitForSlot(self.allocator, label, metadata, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> StateMachine:
        return GiveSlotBack(self, external_id)

    def stays(self, node_id: str) -> bool:
        """Is there a node that will not go soon?"""
        cache = None if self.zk is None else self.zk.cache
        node = None if cache is None else cache.nodes.get(node_id)
        return node is not None and node.state not in (states.DELETING, states.DELETED)

    def listInstances(self) -> Iterable[Instance]:
        """Nodes of this provider that have a slot: their metadata is in their ``driver_data``."""
        return list(self._instances())

    def _instances(self) -> Iterator[Instance]:
        for node in self.zk.nodeIterator() if self.zk is not None else ():
            place = slots.place_of(node) if node.provider == self._provider_name else None
            if place is not None:
                instance = Instance()
                instance.ends = None if self.allocator is None else self.allocator.loss_of(place[0])
                instance.ready = True
                instance.external_id = node.external_id
                metadata = node.driver_data.get("metadata")
                instance.metadata = metadata if isinstance(metadata, dict) else {}
                yield instance

    def listResources(self) -> Iterable[Resource]:
        """Nothing can be left over but locks of backing nodes, which the allocator looks after."""
        if self.allocator is not None:
            self.allocator.sweep_soon()
        return []

    def notifyNodescanFailure(self, label: LabelSettings, external_id: Any) -> None:
        if self.allocator is not None:
            self.allocator.slot_requests.note_failed_scan(str(external_id))

    def stop(self) -> None:
        if self.allocator is not None:
            self.allocator.close()


# Backing nodes of a provider that is removed for good (rules T, G-6).
#
# As long as the provider is configured somewhere this is the `SlotAllocator`'s work.


def backing_nodes(zk: ZooKeeper, provider_name: str) -> Iterator[tuple[Node, str]]:
    """Those that are locked for the provider, each with its contender. Blocks for a round trip a node."""
    owner = owner_of(provider_name)
    for node in zk.nodeIterator(cached=False):
        data = BackingData.decode(node.user_data)
        if node.state == states.IN_USE and data is not None and data.owner == owner:
            holder = zk.nodes.lock_holder(node.key)
            if holder is not None and holder[1] == owner:
                yield node, holder[0]


def release(zk: ZooKeeper, node: Node, contender: str) -> None:
    """Give a backing node back to the provider that it came from, whoever is on it.

    :raises ZKConflict: somebody changed it meanwhile.
    """
    node.state = states.USED
    zk.nodes.save_and_release(node, contender)
