# SPDX-License-Identifier: Apache-2.0
"""`Ec2`: all calls of EC2 that the driver makes for instances. Lists always say how long their pages are: AWS takes
twice as many of these."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound, instance_ids_in
from nodepool.driver.aws.quota_codes import AccountQuota
from nodepool.driver.aws.types import AwsImage, AwsRecord, AwsVolume, InstanceType, tag_list
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.rate_classes import Call

#: Longest pages.
INSTANCES_A_PAGE: Final = 1000
VOLUMES_A_PAGE: Final = 500
IMAGES_A_PAGE: Final = 1000
QUOTAS_A_PAGE: Final = 100


class Ec2:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self.transport = transport

    # -- instances --

    def instances(self) -> list[AwsRecord]:
        """All of the region."""
        pages = self._list("DescribeInstances", {"MaxResults": INSTANCES_A_PAGE}, "Reservations")
        return [AwsRecord.of(data) for reservation in pages for data in reservation.get("Instances") or ()]

    def instance(self, instance_id: str) -> AwsRecord:
        """One instance, as it is now; raises AwsNotFound."""
        found = self._instances_where("instance-id", instance_id)
        if not found:
            raise AwsNotFound(f"there is no instance {instance_id}", code="InvalidInstanceID.NotFound")
        return found[0]

    def instances_of_token(self, token: str) -> list[AwsRecord]:
        """What a creation with this client token made."""
        return self._instances_where("client-token", token)

    def _instances_where(self, name: str, value: str) -> list[AwsRecord]:
        # An id that is not known (yet) is an error in a list of ids, but not in a filter.
        filters = [{"Name": name, "Values": [value]}]
        found = self._list("DescribeInstances", {"Filters": filters, "MaxResults": INSTANCES_A_PAGE}, "Reservations")
        return [AwsRecord.of(data) for reservation in found for data in reservation.get("Instances") or ()]

    def wait_to_run(self) -> Call:
        """Block until instances may be made: for `run_instances`."""
        return self.transport.wait_turn(t.RUN, "RunInstances")

    def run_instances(
        self, arguments: dict[str, Any], count: int, permit: Callable[[], None], turn: Call | None = None
    ) -> list[AwsRecord]:
        """Make instances, at least one; returns them as they are then.

        :param count: so many at most.
        """
        given = {**arguments, "MinCount": 1, "MaxCount": count}
        answer = self.transport.call("ec2", t.RUN, "RunInstances", given, permit, turn)
        if not answer.get("Instances"):
            # What became of them, lists will show.
            raise CloudAway(f"Provider {self.transport.provider}: RunInstances failed: the answer has no instances")
        return [AwsRecord.of(data) for data in answer["Instances"]]

    def terminate(self, take: Callable[[], list[str]]) -> dict[str, Exception]:
        """Order the end of instances in one call; returns the errors of those that are refused.

        :param take: asked for the ids when the call's turn has come.
        """
        ids: list[str] = []

        def arguments() -> dict[str, Any]:
            ids[:] = take()
            return {"InstanceIds": ids}

        try:
            self.transport.call("ec2", t.TERMINATE, "TerminateInstances", arguments)
        except CloudRefused as error:
            return self._one_refused(ids, error)
        return {}

    def _one_refused(self, ids: list[str], error: CloudRefused) -> dict[str, Exception]:
        """One id that AWS does not take makes it refuse all: the others are sent again without it."""
        if len(ids) == 1:
            return {ids[0]: error}
        named = instance_ids_in(str(error)).intersection(ids)
        if isinstance(error, AwsNotFound) and named and len(named) < len(ids):
            rest = [instance_id for instance_id in ids if instance_id not in named]
            return {**dict.fromkeys(named, error), **self.terminate(lambda: rest)}
        half = len(ids) // 2
        return {**self.terminate(lambda: ids[:half]), **self.terminate(lambda: ids[half:])}

    def console(self, instance_id: str) -> str | None:
        """What an instance wrote to its console; None = nothing so far, or it is gone."""
        with contextlib.suppress(AwsNotFound):
            answer = self.transport.call("ec2", t.READ, "GetConsoleOutput", {"InstanceId": instance_id})
            return answer.get("Output") or None
        return None

    # -- volumes --

    def volumes(self) -> list[AwsVolume]:
        """All of the region."""
        found = self._list("DescribeVolumes", {"MaxResults": VOLUMES_A_PAGE}, "Volumes")
        return [AwsVolume.of(data) for data in found]

    def delete_volume(self, volume_id: str) -> None:
        self.transport.call("ec2", t.CHANGE, "DeleteVolume", {"VolumeId": volume_id})

    def tag_now(self, ids: Iterable[str], tags: Mapping[str, str]) -> None:
        """Set tags of things of any kind."""
        self.tag(lambda: (ids, tags))

    def tag(self, wanted: Callable[[], tuple[Iterable[str], Mapping[str, str]]]) -> None:
        """Set tags of things of any kind.

        :param wanted: asked for their ids, and the tags, when the call's turn has come.
        """

        def arguments() -> dict[str, Any]:
            ids, tags = wanted()
            return {"Resources": list(ids), "Tags": tag_list(tags)}

        self.transport.call("ec2", t.TAG, "CreateTags", arguments)

    # -- limits --

    def quotas(self, service: str) -> list[AccountQuota]:
        """Limits of the account.

        :param service: ``ec2`` or ``ebs``.
        """
        given = {"ServiceCode": service, "MaxResults": QUOTAS_A_PAGE}
        found = self.transport.pages("service-quotas", t.QUOTAS, "ListServiceQuotas", given, "Quotas")
        # One that AWS could not find out has a reason in place of its value.
        told = (quota for quota in found if "Value" in quota)
        return [AccountQuota(quota["QuotaCode"], quota.get("QuotaName", ""), quota["Value"]) for quota in told]

    # -- images and types --

    def image(self, image_id: str) -> AwsImage:
        """One AMI; raises AwsNotFound."""
        answer = self.transport.call("ec2", t.READ, "DescribeImages", {"ImageIds": [image_id]})
        if not answer.get("Images"):
            raise AwsNotFound(f"there is no image {image_id}; correct image-id", code="InvalidAMIID.NotFound")
        return AwsImage.of(answer["Images"][0])

    def images_where(self, filters: list[dict[str, Any]]) -> list[AwsImage]:
        """AMIs of anybody for which all filters hold."""
        found = self._list("DescribeImages", {"Filters": filters, "MaxResults": IMAGES_A_PAGE}, "Images")
        return [AwsImage.of(data) for data in found]

    def instance_type(self, name: str) -> InstanceType:
        """One type; an CloudRefused with the code ``InvalidInstanceType`` if AWS does not know it in the region."""
        answer = self.transport.call("ec2", t.READ, "DescribeInstanceTypes", {"InstanceTypes": [name]})
        if not answer.get("InstanceTypes"):
            raise CloudRefused(f"there is no instance type {name}", code="InvalidInstanceType")
        return InstanceType.of(answer["InstanceTypes"][0])

    def _list(self, operation: str, arguments: dict[str, Any], key: str) -> list[dict[str, Any]]:
        return list(self.transport.pages("ec2", t.READ, operation, arguments, key))
