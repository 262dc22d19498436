# SPDX-License-Identifier: Apache-2.0
"""Instances of one provider: how they are listed, made and ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.facts import Places
from nodepool.driver.aws.launch_calls import FleetClient, HostClient
from nodepool.driver.aws.launches import BatchTags, LaunchBatches, LaunchTemplates
from nodepool.driver.aws.transport import CONNECT_SECONDS, READ_SECONDS
from nodepool.driver.aws.types import RUNNING, SHUTTING_DOWN, TERMINATED, AwsRecord
from nodepool.driver.framework.cloud_errors import CloudNoCapacityLater, CloudQuota, one_line
from nodepool.driver.framework.fact import ToldOnce
from nodepool.driver.framework.orders import Batches, CallSpacing
from nodepool.driver.statemachine import DeletionMachine, Instance, InstanceCloud, instance
from nodepool.exceptions import LaunchStatusException
from nodepool.metrics import reports
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig
    from nodepool.driver.aws.facts import AwsFacts
    from nodepool.driver.aws.quota import AccountLimits
    from nodepool.driver.statemachine.adapter import Log

#: Instances that one call ends (AW-15), and so long at least until the next call, for which more gather.
TERMINATED_A_CALL: Final = 100
TERMINATE_SECONDS: Final = 0.25


class AwsInstances(InstanceCloud[AwsRecord]):
    """What launches and deletions of one provider share."""

    # What an answer has told may be missing in lists for some seconds.
    lag_seconds = 5.0
    new_may_be_unknown = True
    call_seconds = CONNECT_SECONDS + READ_SECONDS

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts, limits: AccountLimits) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.fleets = FleetClient(client.transport)
        self.hosts = HostClient(client.transport)
        self.templates = LaunchTemplates(config, self.fleets)
        self.facts = facts
        self.limits = limits
        self.places = Places(facts)
        #: Instances that the latest list shows as terminated, by id: they say why. Replaced as a whole.
        self.terminated: Mapping[str, AwsRecord] = {}
        self._ended = EndedInstances(config.name)
        self._spacing = CallSpacing(TERMINATE_SECONDS, client.transport.sleep)
        self._terminations: Batches[str] = Batches(self._terminate, self.others, TERMINATED_A_CALL)
        self.batch_tags = BatchTags(config.name, client, self.others)
        self.launches = LaunchBatches(client, self.creators, self.batch_tags.made)

    def list_instances(self, since: str | None) -> list[AwsRecord]:
        records = self.client.instances()
        self.terminated = {record.id: record for record in records if record.gone}
        self.batch_tags.seen(records)
        self._ended.seen(records)
        return records

    def get_instance(self, record_id: str) -> AwsRecord:
        return self.client.instance(record_id)

    def record_id(self, external_id: Any) -> str | None:
        return instance_of(external_id)

    def why_ended(self, record: AwsRecord) -> tuple[str, str] | None:
        if record.status not in (SHUTTING_DOWN, TERMINATED):
            return None
        text = one_line(record.reason) if record.reason else "AWS gives no reason"
        return record.reason_code or record.status, f"instance {record.id} is {record.status}: {text}"

    def delete_instance(self, record_id: str) -> None:
        for error in self.client.terminate(lambda: [record_id]).values():
            raise error

    def begin_deletion(self, record_id: str) -> Future[None]:
        return self._terminations.add(record_id)

    def _terminate(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        self._spacing.wait()
        return self.client.terminate(take)

    def close(self) -> None:
        self.client.transport.close()


class AwsDeletion(DeletionMachine[AwsRecord]):
    """Ends an instance and waits until it is gone; then its dedicated host is given back, if it has one.

    AWS keeps a host of macOS for 24 hours. The node does not wait for that: the search for leaks releases the host.
    """

    cloud: AwsInstances

    def __init__(self, cloud: AwsInstances, external_id: Any, log: Log) -> None:
        super().__init__(cloud, instance_of(external_id), log)
        self._host_id = host_of(external_id)

    def begun(self, record: AwsRecord) -> bool:
        return record.status in (SHUTTING_DOWN, TERMINATED)

    def after(self) -> Callable[[], Any] | None:
        host_id, hosts = self._host_id, self.cloud.hosts
        return None if host_id is None else lambda: hosts.release(host_id)


# `AwsInstance`: an instance as the framework sees it (AW-10).


class AwsInstance(Instance):
    """One instance.

    :param used: what it uses of the quota.
    :param label: of the launch; None = it is only listed.
    :param ends: see `Instance`.
    """

    def __init__(
        self,
        record: AwsRecord,
        region: str,
        used: QuotaInformation,
        label: AwsLabel | None = None,
        ends: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ready = record.status == RUNNING
        self.deleted = record.gone
        self.external_id = external_id(record.id, record.host_id)
        self.metadata = dict(record.metadata)
        self.cloud = "AWS"
        self.region = region
        self.az = record.zone
        self.public_ipv4 = record.public_ipv4
        self.public_ipv6 = record.ipv6
        self.private_ipv4 = record.private_ipv4
        self.interface_ip = self.public_ipv4 or self.public_ipv6 or self.private_ipv4
        self.node_properties = {"fleet": label is not None and label.fleet_types is not None, "spot": record.spot}
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


def external_id(instance_id: str, host_id: str | None = None) -> dict[str, str]:
    """What the record of a node says of its instance; Nodepool 11 reads it.

    :param host_id: of the dedicated host that goes with it.
    """
    return {"instance": instance_id, **({"host": host_id} if host_id else {})}


def instance_of(stored: Any) -> str | None:
    """The instance of a node, out of its record, where anything may stand; in old ones it is a text (AW-7)."""
    found = stored.get("instance") if isinstance(stored, dict) else stored
    return found if isinstance(found, str) and found else None


def host_of(stored: Any) -> str | None:
    """The dedicated host of a node, likewise."""
    found = stored.get("host") if isinstance(stored, dict) else None
    return found if isinstance(found, str) and found else None


# Why an instance ended (``StateReason``), and what that means for its launch.

log = logging.getLogger("nodepool.driver.aws.instances")

#: Reasons of states that say more than "it failed".
_QUOTA_REASONS: Final = frozenset({"Client.VolumeLimitExceeded", "Client.InstanceLimitExceeded"})
_CAPACITY_REASONS: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "Client.SpotInstanceTermination",
    }
)


#: Somebody wanted it so: Nodepool after use, or a job.
_WANTED: Final = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"})


def ended(where: str, record: AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    why = f"{record.reason_code}: {record.reason}" if record.reason_code else "AWS gives no reason"
    text = f"{where}: instance {record.id} is {record.status}: {why}"
    if record.reason_code in _QUOTA_REASONS:
        return CloudQuota(text, code=record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return CloudNoCapacityLater(text)
    return LaunchStatusException(text)


class EndedInstances:
    """Tells of each instance of a provider that ended, once. Thread-safe, does not block.

    Lists show instances for about an hour after their end. What the first list shows ended before: it is not told.

    :param provider: its name.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._told = ToldOnce()

    def seen(self, records: Iterable[AwsRecord]) -> None:
        """A list of all instances."""
        over = {
            record.id: record
            for record in records
            if record.status in (SHUTTING_DOWN, TERMINATED) and instance.node_id_of(record.metadata, self._provider)
        }
        for record_id in self._told.new(over):
            self._tell(over[record_id])

    def _tell(self, record: AwsRecord) -> None:
        reports.report_instance_end(self._provider, record.reason_code)
        why = f"{record.reason_code}: {one_line(record.reason)}" if record.reason_code else "AWS gives no reason"
        node_id = instance.node_id_of(record.metadata, self._provider)
        if record.reason_code in _WANTED:
            log.debug("Instance %s of node %s ended: %s", record.id, node_id, why)
            return
        kind = "spot" if record.spot else "on demand"
        log.warning("Instance %s (%s) of node %s ended: %s", record.id, kind, node_id, why)
