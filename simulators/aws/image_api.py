# SPDX-License-Identifier: Apache-2.0
"""Operations on AMIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.core import ACCOUNT
from simulators.aws.filters import Table, matching, one_page, tag_list
from simulators.aws.images import AMAZON, SimulatedImage
from simulators.base.messages import Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

FILTERS: Final[Table[SimulatedImage]] = {
    "image-id": lambda image: [image.id],
    "name": lambda image: [image.name],
    "state": lambda image: [image.state],
    "owner-id": lambda image: [image.owner],
    "architecture": lambda image: [image.architecture],
    "is-public": lambda image: [image.public],
    "root-device-type": lambda _image: ["ebs"],
    "virtualization-type": lambda _image: ["hvm"],
    "image-type": lambda _image: ["machine"],
}


class ImageOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {"DescribeImages": self._describe}

    def _describe(self, arguments: Json) -> Json:
        images = self.cloud.images
        ids = arguments.get("ImageIds")
        asked = list(images.images.values()) if ids is None else [images.get(image_id) for image_id in ids]
        owners = {"self": ACCOUNT, "amazon": AMAZON}
        if wanted := {owners.get(owner, owner) for owner in arguments.get("Owners", ())}:
            asked = [image for image in asked if image.owner in wanted]
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda image: image.tags)
        page, token = one_page(self.cloud.core, found, lambda image: image.id, arguments)
        return {"Images": [shown(image) for image in page], "NextToken": token}


def shown(image: SimulatedImage) -> Json:
    """An image as the answer has it."""
    return {
        "ImageId": image.id,
        "Name": image.name,
        "State": image.state,
        "OwnerId": image.owner,
        "CreationDate": image.created,
        "Architecture": image.architecture,
        "ImageType": "machine",
        "Public": image.public,
        "RootDeviceName": image.root_device,
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": image.ena_support,
        "ImdsSupport": image.imds_support,
        "BlockDeviceMappings": image.devices,
        "Tags": tag_list(image.tags),
    }
