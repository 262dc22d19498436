# SPDX-License-Identifier: Apache-2.0
"""What a fleet of one instance is to be like: launch template and arguments of CreateFleet (AW-8, AW-9). Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.errors import meaning
from nodepool.driver.aws.launch_spec import TAGGED, metadata_options, root_values, tag_specifications
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.driver.statemachine.metadata import PROVIDER_KEY

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel

TEMPLATE_PREFIX: Final = "nodepool-launch-template-"
MANAGED_KEY: Final = "nodepool_managed"
#: As of Nodepool 11: ``str(True)``.
MANAGED: Final = "True"
#: The device that most images have as their root.
_ROOT_DEVICE: Final = "/dev/sda1"
PRIORITIZED: Final = "prioritized"
LOWEST_PRICE: Final = "lowest-price"


def template_tags(provider: str) -> dict[str, str]:
    """Of the templates of a provider."""
    return {MANAGED_KEY: MANAGED, PROVIDER_KEY: provider}


def template_data(label: AwsLabel) -> dict[str, Any]:
    """What CreateFleet cannot be told otherwise."""
    data: dict[str, Any] = {"KeyName": label.key_name}
    if label.pool.security_group_id:
        data["SecurityGroupIds"] = [label.pool.security_group_id]
    volume = root_values(label)
    if volume:
        data["BlockDeviceMappings"] = [
            {"DeviceName": _ROOT_DEVICE, "Ebs": {"DeleteOnTermination": True, **volume}},
        ]
    if label.imdsv2:
        data["MetadataOptions"] = metadata_options(label.imdsv2)
    if label.userdata:
        data["UserData"] = base64.b64encode(label.userdata.encode()).decode()
    return data


def template_name(data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The same for the same template, and never that of another provider."""
    text = json.dumps({"data": data, "tags": tags}, sort_keys=True)
    return TEMPLATE_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def fleet_arguments(
    label: AwsLabel, image_id: str, template: str, tags: Mapping[str, str], token: str, *, spot: bool
) -> dict[str, Any]:
    """Arguments of CreateFleet for one instance, at once.

    :param template: name of the launch template.
    """
    assert label.fleet_types is not None
    places: list[dict[str, Any]] = [{"SubnetId": subnet} for subnet in label.pool.subnet_ids] or [{}]
    overrides = [{"InstanceType": name, "ImageId": image_id, **place} for name in label.fleet_types for place in places]
    if label.fleet_strategy == PRIORITIZED:
        overrides = [{**override, "Priority": float(number)} for number, override in enumerate(overrides)]
    return {
        "ClientToken": token,
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": overrides,
            }
        ],
        **_strategy(label.fleet_strategy or "", spot),
        "TagSpecifications": tag_specifications(tags, *TAGGED),
    }


def _strategy(strategy: str, spot: bool) -> dict[str, Any]:
    """Not every strategy is one of spot instances, and of instances on demand: the nearest is taken then."""
    if spot:
        chosen = "capacity-optimized-prioritized" if strategy == PRIORITIZED else strategy
        return {"SpotOptions": {"AllocationStrategy": chosen}}
    return {"OnDemandOptions": {"AllocationStrategy": PRIORITIZED if strategy == PRIORITIZED else LOWEST_PRICE}}


def instance_of_fleet(head: str, answer: Mapping[str, Any]) -> str:
    """The id of the instance of an answer of CreateFleet.

    :param head: whose call it was, and which.
    :raises CloudRefused: there is none: no room if one of the types may have some later, a limit if one of them waits
        for that, else the first error.
    """
    for group in answer.get("Instances") or ():
        for instance_id in group.get("InstanceIds") or ():
            return str(instance_id)
    return _raise(head, answer.get("Errors") or ())


def _hopelessness(error: Exception) -> int:
    return 0 if isinstance(error, CloudNoCapacity) else 1 if isinstance(error, CloudQuota) else 2


def _raise(head: str, told: Iterable[Mapping[str, Any]]) -> str:
    errors: dict[tuple[str, str], CloudRefused | CloudAway] = {}
    for error in told:
        code, text = str(error.get("ErrorCode", "")), str(error.get("ErrorMessage", ""))
        errors.setdefault((code, text), meaning(head, code, text, 200))
    if not errors:
        # What became of it, lists will show.
        raise CloudAway(f"{head}: the answer has neither an instance nor an error")
    # The first of the best kind.
    chosen = min(errors.values(), key=_hopelessness)
    others = [f"{code}: {text}" for (code, text), error in errors.items() if error is not chosen]
    if others:
        chosen.args = (f"{chosen}; of other types: {'; '.join(others)}", *chosen.args[1:])
    raise chosen
