# SPDX-License-Identifier: Apache-2.0
"""AMIs of the simulated region."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from simulators.aws.core import ACCOUNT, RegionCore
from simulators.base.messages import ApiError, Json

#: Owner of images that AWS offers.
AMAZON: Final = "137112412989"
#: The name of the image that is there to begin with.
IMAGE_NAME: Final = "debian-12"


@dataclass
class SimulatedImage:
    """One AMI.

    :param devices: as the answer has them: ``DeviceName`` and ``Ebs``.
    """

    id: str
    name: str
    created: str
    owner: str = ACCOUNT
    state: str = "available"
    architecture: str = "x86_64"
    root_device: str = "/dev/xvda"
    ena_support: bool = True
    imds_support: str | None = None
    public: bool = False
    devices: list[Json] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


class SimulatedImages:
    """AMIs by id, among them one of Amazon's. The caller holds the core's lock."""

    def __init__(self, core: RegionCore) -> None:
        self.core = core
        self.images: dict[str, SimulatedImage] = {}
        self.add(IMAGE_NAME, owner=AMAZON, public=True)

    def add(self, name: str, snapshot_size_gib: int = 8, **fields: Any) -> SimulatedImage:
        """Adds an image with one volume.

        :param fields: of `SimulatedImage`.
        """
        image = SimulatedImage(self.core.new_id("ami"), name, self.core.stamp(), **fields)
        if not image.devices:
            ebs = {
                "SnapshotId": self.core.new_id("snap"),
                "VolumeSize": snapshot_size_gib,
                "VolumeType": "gp3",
                "DeleteOnTermination": True,
                "Encrypted": False,
            }
            image.devices.append({"DeviceName": image.root_device, "Ebs": ebs})
        self.images[image.id] = image
        return image

    def named(self, name: str) -> SimulatedImage:
        """The image of a name, for tests."""
        return next(image for image in self.images.values() if image.name == name)

    def get(self, image_id: str) -> SimulatedImage:
        """An image.

        :raises ApiError: 400.
        """
        if not image_id.startswith("ami-"):
            raise ApiError(400, f'Invalid id: "{image_id}" (expecting "ami-...")', "InvalidAMIID.Malformed")
        if image_id not in self.images:
            raise ApiError(400, f"The image id '[{image_id}]' does not exist", "InvalidAMIID.NotFound")
        return self.images[image_id]

    def usable(self, image_id: str) -> SimulatedImage:
        """An image that instances can be made of.

        :raises ApiError: 400.
        """
        image = self.get(image_id)
        if image.state != "available":
            raise ApiError(400, f"The AMI ID '{image_id}' is {image.state}", "InvalidAMIID.Unavailable")
        return image
