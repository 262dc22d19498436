# SPDX-License-Identifier: Apache-2.0
"""Instances as records, and as answers show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from simulators.aws.filters import tag_list
from simulators.aws.query_protocol import Markup, members
from simulators.aws.run_spec import RunSpec
from simulators.aws.volumes import SimulatedVolume
from simulators.base.lag import Lagging
from simulators.base.messages import Json

PENDING: Final = "pending"
RUNNING: Final = "running"
SHUTTING_DOWN: Final = "shutting-down"
TERMINATED: Final = "terminated"
CODES: Final = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48}


class InstanceState(NamedTuple):
    """The state of an instance and why it is in it."""

    name: str
    reason_code: str = ""
    reason: str = ""


@dataclass
class SimulatedInstance:
    """One instance, also after its end.

    :ivar visible_at: before that time nobody finds it.
    """

    id: str
    reservation_id: str
    launch_index: int
    spec: RunSpec
    launched: str
    state: Lagging[InstanceState]
    tags: Lagging[dict[str, str]]
    visible_at: float = 0.0
    private_ipv4: str = ""
    public_ipv4: str | None = None
    ipv6: list[str] = field(default_factory=list)
    volumes: list[SimulatedVolume] = field(default_factory=list)
    spot_request_id: str | None = None
    #: What was shown when the text was made, and the text.
    _text: tuple[Any, Markup] | None = None

    @property
    def name(self) -> str:
        """The true state."""
        return self.state.value.name

    @property
    def live(self) -> bool:
        return self.name in (PENDING, RUNNING)

    @property
    def node_metadata(self) -> dict[str, str]:
        """Its tags; of an instance of a batch with the node that its launch index stands for."""
        tags = self.tags.value
        batch = tags.get("nodepool_batch", "").split()
        if "nodepool_node_id" in tags or self.launch_index >= len(batch):
            return tags
        return {**tags, "nodepool_node_id": batch[self.launch_index]}

    def text(self, shape: Any, turn: Callable[..., Any]) -> Markup:
        """The instance as XML.

        :param shape: of an Instance.
        :param turn: see `SimulationCore.turn`.
        """
        state, tags = self.state.shown, self.tags.shown
        shown = (state, id(tags), self.public_ipv4)
        if self._text is None or self._text[0] != shown:
            self._text = (shown, members(self._content(state, tags, turn), shape))
        return self._text[1]

    def _content(self, state: InstanceState, tags: dict[str, str], turn: Callable[..., Any]) -> Json:
        spec = self.spec
        there = state.name not in (TERMINATED, SHUTTING_DOWN)
        running = state.name == RUNNING
        content: Json = {
            "InstanceId": self.id,
            "ImageId": spec.image.id,
            # "The high byte should be ignored", says the service model.
            "State": {"Code": CODES[state.name] + turn("code", 0, 256), "Name": state.name},
            "InstanceType": spec.type.name,
            "KeyName": spec.key_name,
            "AmiLaunchIndex": self.launch_index,
            "LaunchTime": self.launched,
            "Placement": {
                "AvailabilityZone": spec.zone,
                "GroupName": "",
                "Tenancy": spec.tenancy,
                "HostId": spec.host_id,
            },
            "Monitoring": {"State": "disabled"},
            "Architecture": spec.image.architecture,
            "RootDeviceName": spec.image.root_device,
            "RootDeviceType": "ebs",
            "VirtualizationType": "hvm",
            "Hypervisor": "xen",
            "EbsOptimized": spec.ebs_optimized,
            "EnaSupport": spec.image.ena_support,
            "ClientToken": spec.token or None,
            "InstanceLifecycle": "spot" if spec.spot else None,
            "SpotInstanceRequestId": self.spot_request_id,
            "MetadataOptions": {"State": "applied", "HttpTokens": spec.http_tokens, "HttpEndpoint": "enabled"},
            "StateTransitionReason": state.reason if state.name == TERMINATED else "",
            "StateReason": {"Code": state.reason_code, "Message": state.reason} if state.reason_code else None,
            "Tags": tag_list(tags) or turn("tags", [], None),
        }
        if spec.profile:
            content["IamInstanceProfile"] = {"Arn": spec.profile, "Id": "AIPASIMULATED"}
        if there:
            content |= {
                "SubnetId": spec.subnet.id,
                "PrivateIpAddress": self.private_ipv4,
                "PrivateDnsName": f"ip-{self.private_ipv4.replace('.', '-')}.ec2.internal",
                "PublicIpAddress": self.public_ipv4 if running else None,
                "SecurityGroups": [{"GroupId": group} for group in spec.groups],
                "NetworkInterfaces": [self._interface(running)],
                "BlockDeviceMappings": [_mapping(volume) for volume in self.volumes] if running else [],
            }
        return content

    def _interface(self, running: bool) -> Json:
        return {
            "SubnetId": self.spec.subnet.id,
            "PrivateIpAddress": self.private_ipv4,
            "Status": "in-use",
            "Attachment": {"DeviceIndex": 0, "Status": "attached", "DeleteOnTermination": True},
            "Association": {"PublicIp": self.public_ipv4} if running and self.public_ipv4 else None,
            "Ipv6Addresses": [{"Ipv6Address": address} for address in self.ipv6],
        }


def _mapping(volume: SimulatedVolume) -> Json:
    ebs = {"VolumeId": volume.id, "Status": "attached", "DeleteOnTermination": volume.delete_on_termination}
    return {"DeviceName": volume.device, "Ebs": ebs}
