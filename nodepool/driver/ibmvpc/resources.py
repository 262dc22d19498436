# SPDX-License-Identifier: Apache-2.0
"""`IbmResource`: what may be left over in a region (IV-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodepool.driver.statemachine import Resource

INSTANCE: Final = "instance"
FLOATING_IP: Final = "floatingip"
VOLUME: Final = "volume"
IMAGE: Final = "image"
OBJECT: Final = "object"
PART: Final = "part"
#: What uploads leave.
OF_IMAGES: Final = (IMAGE, OBJECT, PART)


class IbmResource(Resource):
    """Something that says whose it is; ``id`` is what it is deleted by.

    :param usable: False = of an upload that never ended.
    """

    def __init__(self, metadata: Mapping[str, str], type: str, id: str, name: str = "", usable: bool = True) -> None:
        super().__init__(dict(metadata), type)
        self.id = id
        self.name = name
        self.usable = usable
