# SPDX-License-Identifier: Apache-2.0
"""Instances of one provider: how they are listed, made and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.batch_tags import BatchTags
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.ended import EndedInstances
from nodepool.driver.aws.fleet_client import FleetClient
from nodepool.driver.aws.host_client import HostClient
from nodepool.driver.aws.instance import host_of, instance_of
from nodepool.driver.aws.launch_batch import LaunchBatches
from nodepool.driver.aws.launch_templates import LaunchTemplates
from nodepool.driver.aws.places import Places
from nodepool.driver.aws.transport import CONNECT_SECONDS, READ_SECONDS
from nodepool.driver.aws.types import SHUTTING_DOWN, TERMINATED, AwsRecord
from nodepool.driver.framework.batches import Batches
from nodepool.driver.framework.call_spacing import CallSpacing
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.statemachine import DeletionMachine, InstanceCloud

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsProviderConfig
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
