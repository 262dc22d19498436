# SPDX-License-Identifier: Apache-2.0
"""`FleetClient`: calls of EC2 for fleets and launch templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.fleet_spec import MANAGED, MANAGED_KEY, instance_of_fleet
from nodepool.driver.aws.launch_spec import tag_specifications
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.statemachine.metadata import PROVIDER_KEY, foreign

_TEMPLATES_A_PAGE: Final = 200
_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"


class LaunchTemplate(NamedTuple):
    """One of ours."""

    id: str
    name: str
    created: datetime | None


class FleetClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def create_fleet(self, arguments: dict[str, Any], permit: Callable[[], None]) -> str:
        """Make a fleet of one instance; returns the id of the instance."""
        answer = self._transport.call("ec2", t.CHANGE, "CreateFleet", arguments, permit)
        return instance_of_fleet(f"Provider {self._transport.provider}: CreateFleet failed", answer)

    def create_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Make a launch template, unless there is one of the name."""
        arguments = {
            "ClientToken": name[-64:],
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecifications": tag_specifications(tags, "launch-template"),
        }
        try:
            self._transport.call("ec2", t.CHANGE, "CreateLaunchTemplate", arguments)
        except CloudRefused as error:
            if error.code != _EXISTS:
                raise

    def templates(self, provider: str) -> list[LaunchTemplate]:
        """Those that launchers made for a provider, but for those of another installation (D-10)."""
        filters = [
            {"Name": f"tag:{MANAGED_KEY}", "Values": [MANAGED]},
            {"Name": f"tag:{PROVIDER_KEY}", "Values": [provider]},
        ]
        given = {"Filters": filters, "MaxResults": _TEMPLATES_A_PAGE}
        found = self._transport.pages("ec2", t.READ, "DescribeLaunchTemplates", given, "LaunchTemplates")
        return [
            LaunchTemplate(data["LaunchTemplateId"], data.get("LaunchTemplateName", ""), data.get("CreateTime"))
            for data in found
            if foreign({tag["Key"]: tag["Value"] for tag in data.get("Tags") or ()}) is None
        ]

    def delete_template(self, template_id: str) -> None:
        self._transport.call("ec2", t.CHANGE, "DeleteLaunchTemplate", {"LaunchTemplateId": template_id})
