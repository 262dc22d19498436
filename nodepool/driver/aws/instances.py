# SPDX-License-Identifier: Apache-2.0
"""Instances of one provider: how they are listed, made and ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.errors import AwsNoCapacity, AwsQuota, AwsRefused
from nodepool.driver.aws.instance import AwsInstance, external_id
from nodepool.driver.aws.launch_spec import instance_tags, run_arguments
from nodepool.driver.aws.places import LaunchPlace, Places
from nodepool.driver.aws.transport import CONNECT_SECONDS, READ_SECONDS
from nodepool.driver.aws.types import PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, AwsRecord
from nodepool.driver.framework.batches import Batches
from nodepool.driver.statemachine import CreationKey, CreationMachine, DeletionMachine, Instance, InstanceCloud
from nodepool.exceptions import CapacityException, LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig
    from nodepool.driver.aws.facts import AwsFacts
    from nodepool.driver.aws.quota import AccountLimits
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: Instances that one call ends (AW-15).
TERMINATED_A_CALL: Final = 50
#: A creation with this token was sent before, with other parameters; or its instance is gone.
_OTHER_PARAMETERS: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"
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


class NoRoom(LaunchStatusException, CapacityException):
    """The instance ended because AWS has no room for it: nothing is wrong with the label."""

    statsd_key = CapacityException.statsd_key


class AwsInstances(InstanceCloud[AwsRecord]):
    """What launches and deletions of one provider share."""

    # What an answer has told may be missing in lists for some seconds.
    lag_seconds = 5.0
    call_seconds = CONNECT_SECONDS + READ_SECONDS

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts, limits: AccountLimits) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.limits = limits
        self.places = Places()
        #: Instances that the latest list shows as terminated, by id: they say why. Replaced as a whole.
        self.terminated: Mapping[str, AwsRecord] = {}
        self._terminations: Batches[str] = Batches(client.terminate, self.others, TERMINATED_A_CALL)

    def list_instances(self, since: str | None) -> list[AwsRecord]:
        records = self.client.instances()
        self.terminated = {record.id: record for record in records if record.gone}
        return records

    def get_instance(self, record_id: str) -> AwsRecord:
        return self.client.instance(record_id)

    def delete_instance(self, record_id: str) -> None:
        for error in self.client.terminate(lambda: [record_id]).values():
            raise error

    def begin_deletion(self, record_id: str) -> Future[None]:
        return self._terminations.add(record_id)

    def close(self) -> None:
        self.client.transport.close()


class AwsCreation(CreationMachine[AwsRecord]):
    """Makes an instance and waits until it runs. AWS knows a creation again by its client token.

    :param image_id: of the upload; None = the label's cloud image.
    """

    idempotent = True

    cloud: AwsInstances

    def __init__(
        self,
        cloud: AwsInstances,
        hostname: str,
        label: AwsLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        log: Log,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log)
        self._label = label
        self._image_id = image_id
        # Once: with other values than before AWS would not know it again.
        self._tags = instance_tags(hostname, label, metadata, request, log)
        #: Where to try it, and with what; of the first one the arguments are kept: what is sent again is the same.
        self._places: list[LaunchPlace] = []
        self._arguments: dict[str, Any] = {}

    def create(self, key: CreationKey) -> str:
        if not self._places:
            self._places = self.cloud.places.to_try(self._label)
        while True:
            try:
                return self._create_at(self._places[0], key)
            except AwsNoCapacity as error:
                self.cloud.places.no_room(self._places[0])
                if len(self._places) == 1:
                    raise
                self.log.info("No room for %s, trying %s: %s", self._places[0], self._places[1], error)
            del self._places[0]
            self._arguments = {}

    def _create_at(self, place: LaunchPlace, key: CreationKey) -> str:
        client = self.cloud.client
        if not self._arguments:
            image = self.cloud.facts.image(self._image_id or self.cloud.facts.cloud_image_id(self._label))
            self._arguments = run_arguments(self._label, place, image, self._tags, token_of(key, place))
        token = self._arguments["ClientToken"]
        try:
            return client.run_instance(self._arguments, self.permit).id
        except AwsRefused as error:
            if error.code == _ENDED:
                raise LaunchStatusException(f"{self.where}: the instance was ended before its creation was told") from (
                    error
                )
            if error.code != _OTHER_PARAMETERS:
                raise
            # A launcher that was killed sent it, and the configuration is another one now.
            live = [record for record in client.instances_of_token(token) if not record.gone]
            if not live:
                raise
            self.log.info("Instance %s was made by the same creation with an earlier configuration", live[0].id)
            return live[0].id

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, AwsRefused) and not isinstance(error, (AwsQuota, AwsNoCapacity)):
            # It may be gone, or be another one now.
            self.cloud.facts.forget(self._label)
        return error

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id)

    def lets_go_on(self, record: AwsRecord | None) -> bool:
        return record is None or record.status != PENDING

    def seen(self, record: AwsRecord) -> Instance | bool:
        if record.status in (SHUTTING_DOWN, TERMINATED):
            raise self._ended(record)
        if record.status != RUNNING:
            return False
        used = self.cloud.limits.use_of(record, label=self._label)
        return AwsInstance(record, self.cloud.config.region_name, used, self._label)

    def gone(self) -> Exception:
        record = self.cloud.terminated.get(self.record_id or "")
        return super().gone() if record is None else self._ended(record)

    def _ended(self, record: AwsRecord) -> Exception:
        error = ended(self.where, record)
        if isinstance(error, NoRoom) and self._places:
            self.cloud.places.no_room(self._places[0])
        return error


class AwsDeletion(DeletionMachine[AwsRecord]):
    """Ends an instance and waits until it is gone."""

    def begun(self, record: AwsRecord) -> bool:
        return record.status in (SHUTTING_DOWN, TERMINATED)


def token_of(key: CreationKey, place: LaunchPlace) -> str:
    """What AWS knows a creation by. Each place has one of its own: with other parameters AWS refuses the same.

    At most 64 characters: 35 of the key, and a few for the place.
    """
    return f"{key.text}-{hashlib.sha256(repr(place).encode()).hexdigest()[:16]}"


def ended(where: str, record: AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    why = f"{record.reason_code}: {record.reason}" if record.reason_code else "AWS gives no reason"
    text = f"{where}: instance {record.id} is {record.status}: {why}"
    if record.reason_code in _QUOTA_REASONS:
        return AwsQuota(text, record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return NoRoom(text)
    return LaunchStatusException(text)
