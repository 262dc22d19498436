# SPDX-License-Identifier: Apache-2.0
"""`ListedImage`: an image in a cloud, as a list shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ListedImage:
    """An image that may be one of ours: its metadata says it (rule D-1).

    :param id: what ``deleteImage()`` takes.
    :param name: "" = it has none.
    :param metadata: as given with the upload.
    :param usable: False = it is no image that a node can be made of: what an upload has left. Without a record nobody
        can use it any more (D-3).
    """

    id: Any
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    usable: bool = True

    @property
    def shown_id(self) -> str:
        """The id for people; that of a resource which stands for an image is its own."""
        return str(getattr(self.id, "id", self.id))
